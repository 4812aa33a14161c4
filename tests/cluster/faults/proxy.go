package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// state is what the control endpoint changes.
type state struct {
	rules   rules
	watches watches
	gate    *gate
}

type proxy struct {
	state *state
	// byToken passes the client's own credentials on. byFront presents a certificate by which the API server
	// believes the headers that say who asked: a client's certificate ends at this proxy.
	byToken, byFront *httputil.ReverseProxy
}

func newProxy(state *state, upstream string, pool *x509.CertPool, front tls.Certificate) *proxy {
	to := &url.URL{Scheme: "https", Host: upstream}
	reverse := func(certificates ...tls.Certificate) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { rewrite(r, to) },
			// HTTP/1.1: streams that share a connection would share each other's fate.
			Transport: &http.Transport{
				TLSClientConfig:     &tls.Config{RootCAs: pool, Certificates: certificates},
				MaxIdleConnsPerHost: 32,
			},
			// An event is of use at once.
			FlushInterval:  -1,
			ModifyResponse: state.modify,
			ErrorHandler:   fail,
		}
	}
	return &proxy{state: state, byToken: reverse(), byFront: reverse(front)}
}

func rewrite(r *httputil.ProxyRequest, to *url.URL) {
	r.SetURL(to)
	for name := range r.Out.Header {
		if strings.HasPrefix(name, "X-Remote-") {
			r.Out.Header.Del(name)
		}
	}
	if r.In.TLS != nil && len(r.In.TLS.PeerCertificates) > 0 {
		subject := r.In.TLS.PeerCertificates[0].Subject
		r.Out.Header.Set("X-Remote-User", subject.CommonName)
		r.Out.Header["X-Remote-Group"] = subject.Organization
	}
}

// fail is for what the transport reports: the client sees the connection end, as it would without a proxy.
func fail(_ http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() == nil {
		log.Printf("%s %s: %v", r.Method, r.URL.Path, err)
		cut(r.Context())
	}
	panic(http.ErrAbortHandler)
}

type (
	ruleKey    struct{}
	requestKey struct{}
)

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parsed := parse(r)
	ctx := context.WithValue(r.Context(), requestKey{}, parsed)
	if rule := p.state.rules.find(parsed); rule != nil {
		log.Printf("rule %d %q: %s %s", rule.ID, rule.Fault, parsed.Verb, r.URL.Path)
		if !wait(ctx, time.Duration(rule.Delay)) {
			return
		}
		if instead(w, r, rule) {
			return
		}
		ctx = context.WithValue(ctx, ruleKey{}, rule)
	}
	to := p.byToken
	if len(r.TLS.PeerCertificates) > 0 {
		to = p.byFront
	}
	to.ServeHTTP(w, r.WithContext(ctx))
}

// instead answers in place of the API server, when the rule says so.
func instead(w http.ResponseWriter, r *http.Request, rule *rule) bool {
	switch rule.Fault {
	case refuse:
		// A client that is still sending its request would take a closed connection for the answer.
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<22))
		w.Header().Set("Content-Type", "application/json")
		if rule.RetryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(rule.RetryAfter))
		}
		w.WriteHeader(rule.Code)
		_, _ = w.Write(status(rule.Code, rule.Reason))
	case event:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(errorEvent(rule.Code, rule.Reason))
	case drop:
		cut(r.Context())
		panic(http.ErrAbortHandler)
	case hang:
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 1<<22))
		<-r.Context().Done()
	default:
		return false
	}
	return true
}

// modify is between the API server's answer and the client.
func (s *state) modify(response *http.Response) error {
	ctx := response.Request.Context()
	rule, _ := ctx.Value(ruleKey{}).(*rule)
	if rule != nil {
		wait(ctx, time.Duration(rule.DelayAnswer))
		if rule.Fault == dropAnswer {
			return fmt.Errorf("the answer %d is dropped by rule %d", response.StatusCode, rule.ID)
		}
	}
	request, _ := ctx.Value(requestKey{}).(request)
	if request.Verb == "watch" && response.StatusCode == http.StatusOK {
		watch := s.watches.add(ctx, request, response.Body, response.Header.Get("Content-Type"))
		if rule != nil && rule.Fault == hold {
			watch.order(holdWatch)
		}
		response.Body = watch
	}
	return nil
}

func wait(ctx context.Context, delay time.Duration) bool {
	if delay == 0 {
		return true
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// status is an error in the API's own form.
func status(code int, reason string) []byte {
	text, err := json.Marshal(map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": fmt.Sprintf("%s: made up by the fault proxy", reason), "reason": reason, "code": code,
	})
	if err != nil {
		panic(err)
	}
	return text
}

func errorEvent(code int, reason string) []byte {
	return fmt.Appendf(nil, `{"type":"ERROR","object":%s}`+"\n", status(code, reason))
}
