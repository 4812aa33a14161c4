package main

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
)

// A mode is what happens to new connections.
type mode string

const (
	// accept takes them.
	accept mode = "accept"
	// reset takes them and closes them at once.
	reset mode = "reset"
	// ignore takes them and never answers: a peer behind a broken network.
	ignore mode = "ignore"
)

// gate is a listener that knows its open connections.
type gate struct {
	net.Listener
	mutex sync.Mutex
	mode  mode
	open  map[*conn]struct{}
}

type conn struct {
	net.Conn
	gate *gate
}

func newGate(listener net.Listener) *gate {
	return &gate{Listener: listener, mode: accept, open: map[*conn]struct{}{}}
}

func (g *gate) Accept() (net.Conn, error) {
	for {
		plain, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: plain, gate: g}
		g.mutex.Lock()
		mode := g.mode
		if mode != reset {
			g.open[c] = struct{}{}
		}
		g.mutex.Unlock()
		switch mode {
		case accept:
			return c, nil
		case reset:
			abort(plain)
		case ignore:
			// It stays in the table until the mode changes.
		}
	}
}

// set changes the mode, and returns how many connections ended with the last one: those that were ignored.
func (g *gate) set(m mode) int {
	g.mutex.Lock()
	was := g.mode
	g.mode = m
	g.mutex.Unlock()
	if was == ignore && m != ignore {
		return g.drop()
	}
	return 0
}

// drop closes all connections.
func (g *gate) drop() int {
	g.mutex.Lock()
	open := g.open
	g.open = map[*conn]struct{}{}
	g.mutex.Unlock()
	for c := range open {
		abort(c.Conn)
	}
	return len(open)
}

func (g *gate) count() (mode, int) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return g.mode, len(g.open)
}

func (c *conn) Close() error {
	c.gate.mutex.Lock()
	delete(c.gate.open, c)
	c.gate.mutex.Unlock()
	return c.Conn.Close()
}

// abort closes by a reset, with nothing of an orderly end.
func abort(plain net.Conn) {
	if tcp, isTCP := plain.(*net.TCPConn); isTCP {
		_ = tcp.SetLinger(0)
	}
	_ = plain.Close()
}

type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// cut aborts the connection that a request came by, and with it all others on it.
func cut(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(net.Conn)
	if secure, isTLS := c.(*tls.Conn); isTLS {
		c = secure.NetConn()
	}
	if ours, isOurs := c.(*conn); isOurs {
		abort(ours.Conn)
	}
}
