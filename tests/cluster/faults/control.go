package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// newControl is the control endpoint. Every answer is JSON; an order that makes no sense gets 400 and the reason.
func newControl(s *state) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		mode, n := s.gate.count()
		answer(w, map[string]any{
			"rules": s.rules.list(), "watches": s.watches.list(), "connections": n, "mode": mode,
		})
	})
	mux.HandleFunc("POST /rules", func(w http.ResponseWriter, r *http.Request) {
		var wanted rule
		if !read(w, r, &wanted) {
			return
		}
		id, err := s.rules.add(wanted)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer(w, map[string]int{"id": id})
	})
	mux.HandleFunc("DELETE /rules", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]int{"removed": s.rules.remove(0)})
	})
	mux.HandleFunc("DELETE /rules/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.PathValue("id"))
		if err != nil || id < 1 {
			http.Error(w, "a rule's id is a number from 1", http.StatusBadRequest)
			return
		}
		answer(w, map[string]int{"removed": s.rules.remove(id)})
	})
	mux.HandleFunc("POST /watches", func(w http.ResponseWriter, r *http.Request) {
		var wanted struct {
			Match match `json:"match"`
			Order order `json:"order"`
		}
		if !read(w, r, &wanted) {
			return
		}
		switch wanted.Order {
		case cutWatch, endWatch, holdWatch, expireWatch:
			answer(w, map[string]int{"watches": s.watches.give(wanted.Match, wanted.Order)})
		default:
			http.Error(w, fmt.Sprintf("unknown order %q", wanted.Order), http.StatusBadRequest)
		}
	})
	mux.HandleFunc("POST /connections", func(w http.ResponseWriter, r *http.Request) { connections(s, w, r) })
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, _ *http.Request) {
		s.gate.set(accept)
		removed := s.rules.remove(0)
		// Watches on hold would stay so; their clients watch again.
		answer(w, map[string]int{"removed": removed, "closed": s.gate.drop()})
	})
	return mux
}

// connections sets what happens to new ones, and with "drop" ends those that are open.
func connections(s *state, w http.ResponseWriter, r *http.Request) {
	var wanted struct {
		Mode mode `json:"mode"`
		Drop bool `json:"drop"`
	}
	if !read(w, r, &wanted) {
		return
	}
	closed := 0
	switch wanted.Mode {
	case accept, reset, ignore:
		closed = s.gate.set(wanted.Mode)
	case "":
	default:
		http.Error(w, fmt.Sprintf("unknown mode %q", wanted.Mode), http.StatusBadRequest)
		return
	}
	if wanted.Drop {
		closed += s.gate.drop()
	}
	answer(w, map[string]int{"closed": closed})
}

// read refuses fields that it does not know: a misspelt rule must not match everything.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
