package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// mqttLink speaks MQTT 3.1.1. Messages go with quality of service 1, which is acknowledged from one hop to the next and
// says nothing about the device; with acks, devices publish what they got, with quality 0, for the sender.
type mqttLink struct {
	connections []net.Conn
	out         *bufio.Writer
	packet      uint16
}

const (
	mqttConnect   = 0x10
	mqttConnAck   = 0x20
	mqttPublish   = 0x30
	mqttPubAck    = 0x40
	mqttSubscribe = 0x82
	mqttSubAck    = 0x90
)

func dialMQTT(crowd *crowd, options linkOptions) (link, error) {
	made := &mqttLink{connections: make([]net.Conn, options.devices+1)}
	err := together(options.devices, func(device int) error {
		connection, in, out, err := mqttDial(options.address, fmt.Sprintf("device%d", device), fmt.Sprintf("d/%d", device))
		if err != nil {
			return err
		}
		made.connections[device] = connection
		go mqttRead(crowd, in, out, func(body []byte) error {
			crowd.arrive(device, body)
			if !options.acks {
				return nil
			}
			return mqttPacket(out, mqttPublish, mqttText(nil, "ack"), body[:digits])
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	connection, in, out, err := mqttDial(options.address, "sender", "ack")
	if err != nil {
		return nil, err
	}
	made.connections[options.devices], made.out = connection, out
	// Nothing that is read here is answered.
	go mqttRead(crowd, in, bufio.NewWriter(io.Discard), func(body []byte) error {
		number, err := strconv.Atoi(string(body))
		crowd.acknowledge(number)
		return err
	})
	return made, nil
}

func mqttDial(address, client, topic string) (net.Conn, *bufio.Reader, *bufio.Writer, error) {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return nil, nil, nil, err
	}
	in, out := bufio.NewReaderSize(connection, bufferBytes), bufio.NewWriterSize(connection, bufferBytes)
	// Clean session, no keep-alive.
	hello := mqttText(append(mqttText(nil, "MQTT"), 4, 2, 0, 0), client)
	ask := append(mqttText([]byte{0, 1}, topic), 1)
	err = errors.Join(mqttPacket(out, mqttConnect, hello), mqttPacket(out, mqttSubscribe, ask), out.Flush())
	for kind := byte(0); err == nil && kind != mqttSubAck; {
		var body []byte
		kind, body, err = mqttReadPacket(in, nil)
		if err == nil && (kind == mqttConnAck && body[1] != 0 || kind == mqttSubAck && body[2] == 0x80) {
			err = fmt.Errorf("mqtt: refused: % x", body)
		}
	}
	return connection, in, out, err
}

func mqttRead(crowd *crowd, in *bufio.Reader, out *bufio.Writer, received func(body []byte) error) {
	var buffer []byte
	for {
		kind, packet, err := mqttReadPacket(in, buffer)
		buffer = packet
		if err == nil && kind&0xf0 == mqttPublish {
			end := 2 + int(binary.BigEndian.Uint16(packet))
			if quality := kind >> 1 & 3; quality > 0 {
				err = mqttPacket(out, mqttPubAck, packet[end:end+2])
				end += 2
			}
			err = errors.Join(err, received(packet[end:]))
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

func mqttReadPacket(in *bufio.Reader, buffer []byte) (byte, []byte, error) {
	kind, err := in.ReadByte()
	if err != nil {
		return 0, nil, err
	}
	length, err := binary.ReadUvarint(in)
	if err != nil {
		return 0, nil, err
	}
	if uint64(cap(buffer)) < length {
		buffer = make([]byte, length)
	}
	buffer = buffer[:length]
	_, err = io.ReadFull(in, buffer)
	return kind, buffer, err
}

func mqttText(to []byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16(to, uint16(len(text))), text...)
}

func mqttPacket(out *bufio.Writer, kind byte, parts ...[]byte) error {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	_, err := out.Write(binary.AppendUvarint([]byte{kind}, uint64(size)))
	for _, part := range parts {
		_, err = out.Write(part)
	}
	return err
}

func (made *mqttLink) Send(device, _ int, body []byte) error {
	made.packet = max(1, made.packet+1)
	topic := mqttText(nil, "d/"+strconv.Itoa(device))
	return mqttPacket(made.out, mqttPublish|1<<1, binary.BigEndian.AppendUint16(topic, made.packet), body)
}

func (made *mqttLink) Flush() error { return made.out.Flush() }

func (made *mqttLink) Close() { closeAll(made.connections) }
