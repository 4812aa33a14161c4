package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
)

// An order is for a watch that is open.
type order string

const (
	// cutWatch closes its connection in the middle.
	cutWatch order = "cut"
	// endWatch ends it in good form, as the API server does after its time.
	endWatch order = "end"
	// holdWatch keeps it open and sends nothing more: half open.
	holdWatch order = "hold"
	// expireWatch sends the error event 410 and ends it.
	expireWatch order = "expire"
)

// maxEvent is beyond the largest object that the API server takes, some 1.5 MB.
const maxEvent = 8 << 20

// watch is the body of a watch's answer; it hands on whole events, so that an order comes between two of them.
type watch struct {
	ctx     context.Context
	request request
	body    io.ReadCloser
	events  chan []byte
	// orders has one place: an order on its way is replaced by none, since only the first can matter.
	orders  chan order
	rest    []byte
	isEnded bool
	remove  func()
}

type watches struct {
	mutex sync.Mutex
	open  map[*watch]struct{}
}

func (s *watches) add(ctx context.Context, request request, body io.ReadCloser, contentType string) *watch {
	w := &watch{ctx: ctx, request: request, body: body, events: make(chan []byte), orders: make(chan order, 1)}
	w.remove = func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		delete(s.open, w)
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.open == nil {
		s.open = map[*watch]struct{}{}
	}
	s.open[w] = struct{}{}
	go w.receive(strings.HasPrefix(contentType, "application/json"))
	return w
}

// give gives an order to the watches that match and returns how many they are.
func (s *watches) give(m match, o order) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	n := 0
	for w := range s.open {
		if m.includes(w.request) {
			n++
			w.order(o)
		}
	}
	return n
}

func (s *watches) list() []request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	list := make([]request, 0, len(s.open))
	for w := range s.open {
		list = append(list, w.request)
	}
	return list
}

func (w *watch) order(o order) {
	select {
	case w.orders <- o:
	default:
	}
}

// receive reads the API server's events: a line is one, in JSON. Other forms are handed on as they come.
func (w *watch) receive(isJSON bool) {
	defer close(w.events)
	reader := bufio.NewReaderSize(w.body, 64<<10)
	for {
		event, err := next(reader, isJSON)
		if len(event) > 0 {
			select {
			case w.events <- event:
			case <-w.ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func next(reader *bufio.Reader, isJSON bool) ([]byte, error) {
	if !isJSON {
		buffer := make([]byte, 64<<10)
		n, err := reader.Read(buffer)
		return buffer[:n], err
	}
	var event []byte
	for {
		part, err := reader.ReadSlice('\n')
		event = append(event, part...)
		if !errors.Is(err, bufio.ErrBufferFull) || len(event) > maxEvent {
			return event, err
		}
	}
}

func (w *watch) Read(buffer []byte) (int, error) {
	if len(w.rest) == 0 && !w.isEnded {
		if err := w.wait(); err != nil {
			return 0, err
		}
	}
	if len(w.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(buffer, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

// wait waits for an event or an order. An order that is there comes first: no event passes after it was given.
func (w *watch) wait() error {
	select {
	case o := <-w.orders:
		return w.obey(o)
	default:
	}
	select {
	case event, isOpen := <-w.events:
		w.rest, w.isEnded = event, !isOpen
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	case o := <-w.orders:
		return w.obey(o)
	}
}

func (w *watch) obey(o order) error {
	switch o {
	case endWatch:
		w.isEnded = true
	case expireWatch:
		w.rest, w.isEnded = errorEvent(410, reasons[410]), true
	case holdWatch:
		return w.hold()
	case cutWatch:
		cut(w.ctx)
		return errors.New("cut by order")
	}
	return nil
}

// hold lasts until the client gives up, or the next order: nothing of the API server's is handed on any more.
func (w *watch) hold() error {
	select {
	case <-w.ctx.Done():
		return w.ctx.Err()
	case o := <-w.orders:
		return w.obey(o)
	}
}

func (w *watch) Close() error {
	w.remove()
	return w.body.Close()
}
