package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxRules bounds what a test that never removes its rules can leave behind.
const maxRules = 1000

// match names requests. An empty field matches all; a "-" as namespace matches what has none: lists and watches over
// all namespaces, and objects of cluster scope.
type match struct {
	// Verbs are those of RBAC; "write" stands for the five that change something.
	Verbs       []string `json:"verbs,omitempty"`
	Group       *string  `json:"group,omitempty"`
	Resource    string   `json:"resource,omitempty"`
	Subresource *string  `json:"subresource,omitempty"`
	Namespace   string   `json:"namespace,omitempty"`
	Name        string   `json:"name,omitempty"`
	User        string   `json:"user,omitempty"`
	Path        string   `json:"path,omitempty"`
}

var writes = []string{"create", "update", "patch", "delete", "deletecollection"}

func (m match) includes(r request) bool {
	isVerb := func(verb string) bool {
		return verb == r.Verb || verb == "write" && slices.Contains(writes, r.Verb)
	}
	is := func(wanted, has string) bool { return wanted == "" || wanted == has }
	isExactly := func(wanted *string, has string) bool { return wanted == nil || *wanted == has }
	return (len(m.Verbs) == 0 || slices.ContainsFunc(m.Verbs, isVerb)) &&
		isExactly(m.Group, r.Group) && is(m.Resource, r.Resource) && isExactly(m.Subresource, r.Subresource) &&
		(is(m.Namespace, r.Namespace) || m.Namespace == "-" && r.Namespace == "") &&
		is(m.Name, r.Name) && is(m.User, r.User) && is(m.Path, r.Path)
}

// rule is a fault for the requests that it matches. Delays come first, whatever else there is.
type rule struct {
	ID    int   `json:"id"`
	Match match `json:"match"`
	// Times is how many requests it is for; 0: all, until it is removed.
	Times int `json:"times,omitempty"`
	// Hits counts the requests that it was applied to.
	Hits int `json:"hits"`
	// Delay passes before the request goes on.
	Delay duration `json:"delay,omitempty"`
	// DelayAnswer passes before the API server's answer goes on: by then a write has happened.
	DelayAnswer duration `json:"delayAnswer,omitempty"`
	// Fault is what happens in place of the API server's answer.
	Fault fault `json:"fault,omitempty"`
	// Code and Reason are of the error for "refuse" and "event"; RetryAfter is a header, in seconds.
	Code       int    `json:"code,omitempty"`
	Reason     string `json:"reason,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"`
}

type fault string

const (
	// none lets the request through, with its delays.
	none fault = ""
	// refuse answers with an error in place of the API server.
	refuse fault = "refuse"
	// event begins a watch whose only event is an error: the API server's way to say 410 to a watch.
	event fault = "event"
	// drop closes the connection without an answer; the API server never sees the request.
	drop fault = "drop"
	// dropAnswer lets the API server do it, and closes the connection in place of the answer.
	dropAnswer fault = "drop-answer"
	// hang never answers, and keeps the connection; the API server never sees the request.
	hang fault = "hang"
	// hold lets the answer of a watch begin, and then sends nothing more: half open from its start.
	hold fault = "hold"
)

// duration is a time.Duration as "1s500ms" in JSON.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err == nil && parsed < 0 {
		err = errors.New("a delay is not negative")
	}
	*d = duration(parsed)
	return err
}

var reasons = map[int]string{
	400: "BadRequest", 401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 410: "Expired",
	422: "Invalid", 429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable", 504: "Timeout",
}

func (r *rule) check() error {
	switch r.Fault {
	case refuse, event:
		if r.Code < 400 || r.Code > 599 {
			return fmt.Errorf("fault %q needs the code of an error, not %d", r.Fault, r.Code)
		}
		r.Reason = cmp.Or(r.Reason, reasons[r.Code])
	case none:
		if r.Delay == 0 && r.DelayAnswer == 0 {
			return errors.New("a rule without fault and delay does nothing")
		}
	case drop, dropAnswer, hang, hold:
	default:
		return fmt.Errorf("unknown fault %q", r.Fault)
	}
	if r.Times < 0 {
		return errors.New("times is not negative")
	}
	return nil
}

// rules are asked in the order they were added; the first that matches applies, alone.
type rules struct {
	mutex  sync.Mutex
	all    []*rule
	lastID int
}

func (s *rules) add(r rule) (int, error) {
	if err := r.check(); err != nil {
		return 0, err
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if len(s.all) == maxRules {
		return 0, fmt.Errorf("%d rules are too many", maxRules)
	}
	s.lastID++
	r.ID, r.Hits = s.lastID, 0
	s.all = append(s.all, &r)
	return r.ID, nil
}

// find counts the request as a hit of the rule that it gives.
func (s *rules) find(r request) *rule {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, rule := range s.all {
		if (rule.Times == 0 || rule.Hits < rule.Times) && rule.Match.includes(r) {
			rule.Hits++
			found := *rule
			return &found
		}
	}
	return nil
}

// remove removes one rule, or all by the number 0.
func (s *rules) remove(id int) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	before := len(s.all)
	s.all = slices.DeleteFunc(s.all, func(r *rule) bool { return id == 0 || r.ID == id })
	return before - len(s.all)
}

func (s *rules) list() []rule {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	list := make([]rule, 0, len(s.all))
	for _, rule := range s.all {
		list = append(list, *rule)
	}
	return list
}
