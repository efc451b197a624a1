package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strconv"
)

const bufferBytes = 64 * 1024

// natsLink speaks NATS's own text protocol: the core, which keeps nothing and acknowledges nothing. With acks, devices
// publish the number of what they got to the reply subject.
type natsLink struct {
	connections []net.Conn
	out         *bufio.Writer
	acks        bool
}

func dialNATS(crowd *crowd, options linkOptions) (link, error) {
	made := &natsLink{connections: make([]net.Conn, options.devices+1), acks: options.acks}
	err := together(options.devices, func(device int) error {
		connection, in, out, err := natsConnect(options.address, fmt.Sprintf("d.%d", device))
		if err != nil {
			return err
		}
		made.connections[device] = connection
		go natsRead(crowd, in, out, func(reply, body []byte) error {
			crowd.arrive(device, body)
			if len(reply) == 0 {
				return nil
			}
			_, err := fmt.Fprintf(out, "PUB %s %d\r\n%s\r\n", reply, digits, body[:digits])
			return err
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	connection, in, out, err := natsConnect(options.address, "ack")
	if err != nil {
		return nil, err
	}
	made.connections[options.devices], made.out = connection, out
	// The sender writes from elsewhere: answers to pings have a writer of their own.
	go natsRead(crowd, in, bufio.NewWriter(connection), func(_, body []byte) error {
		number, err := strconv.Atoi(string(body))
		crowd.acknowledge(number)
		return err
	})
	return made, nil
}

func natsConnect(address, subject string) (net.Conn, *bufio.Reader, *bufio.Writer, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, nil, err
	}
	in, out := bufio.NewReaderSize(connection, bufferBytes), bufio.NewWriterSize(connection, bufferBytes)
	fmt.Fprintf(out, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nSUB %s 1\r\nPING\r\n", subject)
	if err := out.Flush(); err != nil {
		return nil, nil, nil, err
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, nil, nil, err
		}
		if bytes.HasPrefix(line, []byte("PONG")) {
			return connection, in, out, nil
		}
		if bytes.HasPrefix(line, []byte("-ERR")) {
			return nil, nil, nil, fmt.Errorf("nats: %s", line)
		}
	}
}

func natsRead(crowd *crowd, in *bufio.Reader, out *bufio.Writer, received func(reply, body []byte) error) {
	body := make([]byte, 0, 8192)
	for {
		line, err := in.ReadSlice('\n')
		switch {
		case err != nil:
		case bytes.HasPrefix(line, []byte("MSG ")):
			fields := bytes.Fields(line)
			var size int
			var reply []byte
			size, err = strconv.Atoi(string(fields[len(fields)-1]))
			if len(fields) == 5 {
				reply = bytes.Clone(fields[3])
			}
			if err == nil {
				body = append(body[:0], make([]byte, size+2)...)
				_, err = io.ReadFull(in, body)
			}
			if err == nil {
				err = received(reply, body[:size])
			}
		case bytes.HasPrefix(line, []byte("PING")):
			_, err = out.WriteString("PONG\r\n")
		case bytes.HasPrefix(line, []byte("-ERR")):
			err = fmt.Errorf("nats: %s", line)
		}
		if err == nil && in.Buffered() == 0 {
			err = out.Flush()
		}
		if err != nil {
			crowd.fail(err)
			return
		}
	}
}

func (made *natsLink) Send(device, _ int, body []byte) error {
	reply := ""
	if made.acks {
		reply = "ack "
	}
	fmt.Fprintf(made.out, "PUB d.%d %s%d\r\n", device, reply, len(body))
	_, _ = made.out.Write(body)
	_, err := made.out.WriteString("\r\n")
	return err
}

func (made *natsLink) Flush() error { return made.out.Flush() }

func (made *natsLink) Close() { closeAll(made.connections) }

func closeAll(connections []net.Conn) {
	for _, connection := range connections {
		if connection != nil {
			_ = connection.Close()
		}
	}
}
