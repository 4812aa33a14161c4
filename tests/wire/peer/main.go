// Reads requests with the server of Go's standard library and says what it read.
//
// On standard input come streams, each with its length before it (four bytes, big-endian); each is served as one
// connection. On standard output there is one line for each request that reached the handler:
//
//	request METHOD URI HOST PATH QUERY BODY FIELD=VALUE ... ! TRAILER=VALUE ...
//
// every word in hexadecimal behind its first letter, and at the end of a stream
//
//	end STATUS...
//
// with the status of each answer, those that the server gave by itself among them.
package main

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"regexp"
	"sort"
	"strings"
	"sync"
	"time"
)

// conn is a connection whose other side has sent all of it and closed.
type conn struct {
	in     io.Reader
	out    strings.Builder
	closed chan struct{}
	once   sync.Once
}

func (c *conn) Read(b []byte) (int, error)       { return c.in.Read(b) }
func (c *conn) Write(b []byte) (int, error)      { return c.out.Write(b) }
func (c *conn) Close() error                     { c.once.Do(func() { close(c.closed) }); return nil }
func (c *conn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *conn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *conn) SetDeadline(time.Time) error      { return nil }
func (c *conn) SetReadDeadline(time.Time) error  { return nil }
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) { return <-l, nil }
func (l listener) Close() error              { return nil }
func (l listener) Addr() net.Addr            { return &net.TCPAddr{} }

func word(text string) string { return " x" + hex.EncodeToString([]byte(text)) }

func fields(header http.Header) string {
	names := make([]string, 0, len(header))
	for name := range header {
		names = append(names, name)
	}
	sort.Strings(names)
	var all strings.Builder
	for _, name := range names {
		for _, value := range header[name] {
			all.WriteString(word(strings.ToLower(name)) + "=" + hex.EncodeToString([]byte(value)))
		}
	}
	return all.String()
}

var status = regexp.MustCompile(`(?m)^HTTP/1\.[01] ([0-9]{3})`)

func main() {
	out := bufio.NewWriter(os.Stdout)
	var lines []string
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A body that is cut or malformed makes this fail: then the request was not read.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		line := "request" + word(r.Method) + word(r.RequestURI) + word(r.Host) + word(r.URL.Path) + word(r.URL.RawQuery) +
			word(string(body)) + fields(r.Header) + " !" + fields(r.Trailer)
		lines = append(lines, line)
	})
	conns := make(listener)
	server := http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	go server.Serve(conns)
	in := bufio.NewReader(os.Stdin)
	for {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err == io.EOF {
			return
		} else if err != nil {
			log.Fatal(err)
		}
		lines = nil
		c := &conn{in: io.LimitReader(in, int64(length)), closed: make(chan struct{})}
		conns <- c
		<-c.closed
		// What the server left unread.
		if _, err := io.Copy(io.Discard, c.in); err != nil {
			log.Fatal(err)
		}
		for _, line := range lines {
			fmt.Fprintln(out, line)
		}
		fmt.Fprint(out, "end")
		for _, answer := range status.FindAllStringSubmatch(c.out.String(), -1) {
			fmt.Fprint(out, " "+answer[1])
		}
		fmt.Fprintln(out)
		if in.Buffered() == 0 {
			out.Flush()
		}
	}
}
