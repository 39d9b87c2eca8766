package main

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"sync/atomic"
)

// roundTripCounter forwards connections to Postgres and counts the client's round trips. In
// each round trip the client sends exactly one Sync or simple Query message.
type roundTripCounter struct {
	listener net.Listener
	server   string // host:port
	count    atomic.Int64
}

func newRoundTripCounter(server string) (*roundTripCounter, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &roundTripCounter{listener: listener, server: server}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go p.forward(client)
		}
	}()
	return p, nil
}

func (p *roundTripCounter) address() string { return p.listener.Addr().String() }

func (p *roundTripCounter) close() { p.listener.Close() }

func (p *roundTripCounter) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp4", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(client, server)
		client.Close()
	}()
	p.copyMessages(server, bufio.NewReader(client))
}

// copyMessages copies the client's messages to the server until an error, and counts the Sync
// and Query messages. In version 3 of Postgres's protocol, a message is a type byte, a 4-byte
// length and a body. The length counts its own 4 bytes too. The first message has no type byte.
func (p *roundTripCounter) copyMessages(server net.Conn, client *bufio.Reader) {
	out := bufio.NewWriter(server)
	for first := true; ; first = false {
		header := make([]byte, 5)
		if first {
			header = header[:4]
		}
		if _, err := io.ReadFull(client, header); err != nil {
			return
		}
		if _, err := out.Write(header); err != nil {
			return
		}
		length := binary.BigEndian.Uint32(header[len(header)-4:])
		if _, err := io.CopyN(out, client, int64(length)-4); err != nil {
			return
		}
		if !first && (header[0] == 'S' || header[0] == 'Q') {
			p.count.Add(1)
		}
		if client.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return
			}
		}
	}
}
