package main

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
)

// request is what the API server's own authorization would look at. Who asks is what the client claims: nothing is
// verified here, the API server does that.
type request struct {
	Verb        string `json:"verb"`
	Group       string `json:"group"`
	Resource    string `json:"resource"`
	Subresource string `json:"subresource"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	User        string `json:"user"`
	Path        string `json:"path"`
}

func parse(r *http.Request) request {
	result := request{User: user(r), Path: r.URL.Path}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(parts) >= 3 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) >= 4 && parts[0] == "apis":
		result.Group = parts[1]
		parts = parts[3:]
	default:
		result.Verb = strings.ToLower(r.Method)
		return result
	}
	// /namespaces/NAME itself is an object without a namespace.
	if parts[0] == "namespaces" && len(parts) > 2 {
		result.Namespace = parts[1]
		parts = parts[2:]
	}
	for i, field := range []*string{&result.Resource, &result.Name, &result.Subresource} {
		if i < len(parts) {
			*field = parts[i]
		}
	}
	result.Verb = verb(r, result.Name != "")
	return result
}

func verb(r *http.Request, hasName bool) string {
	switch r.Method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if hasName {
			return "delete"
		}
		return "deletecollection"
	}
	watch := r.URL.Query().Get("watch")
	switch {
	case watch == "true" || watch == "1":
		return "watch"
	case hasName:
		return "get"
	}
	return "list"
}

// user is the name in a certificate, or the subject of a service account's token.
func user(r *http.Request) string {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		return r.TLS.PeerCertificates[0].Subject.CommonName
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	claims, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var subject struct {
		Sub string `json:"sub"`
	}
	if json.Unmarshal(claims, &subject) != nil {
		return ""
	}
	return subject.Sub
}
