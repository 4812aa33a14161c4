// Command faults is a proxy before the real API server, for tests of clients: it passes everything through until it
// is told, at its control endpoint, which requests to delay, refuse or leave without an answer, which watches to cut
// or to hold half open, and whether to take connections at all.
//
// It makes up no object: what a client gets is the API server's answer, an error of the API's own form, or nothing.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
)

func main() {
	var (
		listen   = flag.String("listen", "", "address for the clients, by TLS")
		control  = flag.String("control", "", "address of the control endpoint, without TLS")
		upstream = flag.String("upstream", "", "HOST:PORT of the API server")
		cert     = flag.String("tls-cert-file", "", "the proxy's certificate")
		key      = flag.String("tls-private-key-file", "", "its key")
		ca       = flag.String("ca-file", "", "who signed the API server's certificate and those of clients")
		front    = flag.String("proxy-client-cert-file", "", "as which the proxy passes on who presented a certificate")
		frontKey = flag.String("proxy-client-key-file", "", "its key")
	)
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("faults: unexpected argument %q", flag.Arg(0))
	}
	if err := run(*listen, *control, *upstream, *cert, *key, *ca, *front, *frontKey); err != nil {
		log.Fatal("faults: ", err)
	}
}

func run(listen, control, upstream, cert, key, ca, front, frontKey string) error {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return err
	}
	frontPair, err := tls.LoadX509KeyPair(front, frontKey)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return fmt.Errorf("no certificate in %s", ca)
	}
	plain, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	gate := newGate(plain)
	state := &state{gate: gate}
	server := &http.Server{
		Handler:     newProxy(state, upstream, pool, frontPair),
		ConnContext: withConn,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{pair},
			ClientCAs:    pool,
			ClientAuth:   tls.VerifyClientCertIfGiven,
		},
	}
	failed := make(chan error, 2)
	go func() { failed <- server.ServeTLS(gate, "", "") }()
	go func() { failed <- http.ListenAndServe(control, newControl(state)) }()
	return errors.Join(errors.New("a server ended"), <-failed)
}
