package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"
)

// tidingsLink speaks the device API over TCP: 4 bytes of length, then a MessagePack map. `accepted` is the sender's
// acknowledgement: the envelope is with its device, or on disk.
type tidingsLink struct {
	connections []net.Conn
	out         *bufio.Writer
	mutex       sync.Mutex
	sender      string
	numbers     []string
	sent        int64
}

func dialTidings(crowd *crowd, options linkOptions) (link, error) {
	made := &tidingsLink{connections: make([]net.Conn, options.devices+1)}
	for device := range options.devices {
		made.numbers = append(made.numbers, fmt.Sprintf("1555100%04d", device))
	}
	made.sender = "15550000000"
	err := together(options.devices, func(device int) error {
		number := made.numbers[device]
		connection, in, out, err := tidingsConnect(options.address, number, options.tokens[number])
		if err != nil {
			return err
		}
		made.connections[device] = connection
		go func() { crowd.fail(tidingsDevice(crowd, device, in, out)) }()
		return nil
	})
	if err != nil {
		return nil, err
	}
	connection, in, out, err := tidingsConnect(options.address, made.sender, options.tokens[made.sender])
	if err != nil {
		return nil, err
	}
	made.connections[options.devices], made.out = connection, out
	go made.ping()
	go func() { crowd.fail(tidingsSender(crowd, in)) }()
	return made, nil
}

func tidingsConnect(address, number, token string) (net.Conn, *bufio.Reader, *bufio.Writer, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, nil, err
	}
	in, out := bufio.NewReaderSize(connection, bufferBytes), bufio.NewWriterSize(connection, bufferBytes)
	login := packed{}.mapOf(4).text("t").text("login").text("n").number(1).text("number").text(number).text("token").text(token)
	if err := login.frame(out); err != nil {
		return nil, nil, nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, nil, nil, err
	}
	answer, err := readFrame(in, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	if said, err := unpack(answer); err != nil || said.kind != "ok" {
		return nil, nil, nil, fmt.Errorf("login of %s: %q %w", number, answer, err)
	}
	return connection, in, out, nil
}

// tidingsDevice acknowledges what has come together in one frame.
func tidingsDevice(crowd *crowd, device int, in *bufio.Reader, out *bufio.Writer) error {
	var buffer []byte
	var got []int64
	for {
		data, err := readFrame(in, buffer)
		if err != nil {
			return err
		}
		buffer = data
		said, err := unpack(data)
		if err != nil {
			return err
		}
		if said.kind == "deliver" {
			crowd.arrive(device, said.body)
			got = append(got, said.number)
		}
		if in.Buffered() == 0 && len(got) > 0 {
			ack := packed{}.mapOf(2).text("t").text("ack").text("n").arrayOf(len(got))
			for _, number := range got {
				ack = ack.number(number)
			}
			if err := ack.frame(out); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
			got = got[:0]
		}
	}
}

func tidingsSender(crowd *crowd, in *bufio.Reader) error {
	var buffer []byte
	for {
		data, err := readFrame(in, buffer)
		if err != nil {
			return err
		}
		buffer = data
		said, err := unpack(data)
		if err != nil {
			return err
		}
		switch said.kind {
		case "accepted":
			for _, number := range said.numbers {
				crowd.acknowledge(int(number) - 1)
			}
		case "refused", "closing":
			return fmt.Errorf("the network says %s: %q", said.kind, data)
		}
	}
}

var tidingsRun = strconv.FormatInt(time.Now().UnixNano(), 36)

func (made *tidingsLink) Send(device, number int, body []byte) error {
	made.mutex.Lock()
	defer made.mutex.Unlock()
	made.sent++
	id := tidingsRun + "-" + strconv.FormatInt(made.sent, 36)
	return packed{}.mapOf(7).text("t").text("send").text("n").number(int64(number) + 1).text("from").text(made.sender).
		text("to").text(made.numbers[device]).text("id").text(id).text("kind").text("message").
		text("body").bytes(body).frame(made.out)
}

// A connection that says nothing for a minute is closed.
func (made *tidingsLink) ping() {
	for range time.Tick(20 * time.Second) {
		made.mutex.Lock()
		err := errors.Join(packed{}.mapOf(1).text("t").text("ping").frame(made.out), made.out.Flush())
		made.mutex.Unlock()
		if err != nil {
			return
		}
	}
}

func (made *tidingsLink) Flush() error {
	made.mutex.Lock()
	defer made.mutex.Unlock()
	return made.out.Flush()
}

func (made *tidingsLink) Close() { closeAll(made.connections) }

func readFrame(in *bufio.Reader, buffer []byte) ([]byte, error) {
	head, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head))
	_, _ = in.Discard(4)
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	buffer = buffer[:size]
	_, err = io.ReadFull(in, buffer)
	return buffer, err
}

// packed is a MessagePack value that grows.
type packed []byte

func (p packed) mapOf(entries int) packed { return append(p, 0x80|byte(entries)) }

func (p packed) arrayOf(entries int) packed {
	if entries < 16 {
		return append(p, 0x90|byte(entries))
	}
	return binary.BigEndian.AppendUint32(append(p, 0xdd), uint32(entries))
}

func (p packed) text(value string) packed {
	if len(value) < 32 {
		return append(append(p, 0xa0|byte(len(value))), value...)
	}
	return append(binary.BigEndian.AppendUint16(append(p, 0xda), uint16(len(value))), value...)
}

func (p packed) bytes(value []byte) packed {
	return append(binary.BigEndian.AppendUint32(append(p, 0xc6), uint32(len(value))), value...)
}

func (p packed) number(value int64) packed {
	if value < 128 {
		return append(p, byte(value))
	}
	return binary.BigEndian.AppendUint64(append(p, 0xcf), uint64(value))
}

func (p packed) frame(out *bufio.Writer) error {
	var head [4]byte
	binary.BigEndian.PutUint32(head[:], uint32(len(p)))
	_, _ = out.Write(head[:])
	_, err := out.Write(p)
	return err
}
