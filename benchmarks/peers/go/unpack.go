package main

import (
	"encoding/binary"
	"errors"
	"math"
)

// said is what matters here of a frame.
type said struct {
	kind    string
	number  int64
	numbers []int64
	body    []byte
}

var errUnreadable = errors.New("not a frame")

// reader walks through one MessagePack value. After a mistake everything is empty and `broken` true.
type reader struct {
	data   []byte
	broken bool
}

func unpack(data []byte) (said, error) {
	r := &reader{data: data}
	found := said{}
	entries := r.length(0x80, 0x0f, 0xde)
	for range entries {
		switch string(r.text()) {
		case "t":
			found.kind = string(r.text())
		case "n":
			if r.isArray() {
				for range r.length(0x90, 0x0f, 0xdc) {
					found.numbers = append(found.numbers, r.number())
				}
			} else {
				found.number = r.number()
			}
		case "body":
			found.body = r.text()
		default:
			r.skip()
		}
	}
	if r.broken {
		return found, errUnreadable
	}
	return found, nil
}

func (r *reader) take(size int) []byte {
	if size > len(r.data) {
		r.broken, r.data = true, nil
		return make([]byte, min(size, 16))
	}
	taken := r.data[:size]
	r.data = r.data[size:]
	return taken
}

func (r *reader) byte() byte { return r.take(1)[0] }

func (r *reader) unsigned(size int) int {
	value := 0
	for _, each := range r.take(size) {
		value = value<<8 | int(each)
	}
	return value
}

// length of a map or an array: within its first byte, or in the 2 or 4 bytes after it.
func (r *reader) length(fixed, mask, wide byte) int {
	first := r.byte()
	switch {
	case first&^mask == fixed:
		return int(first & mask)
	case first == wide:
		return r.unsigned(2)
	case first == wide+1:
		return r.unsigned(4)
	}
	r.broken = true
	return 0
}

func (r *reader) isArray() bool {
	return len(r.data) > 0 && (r.data[0]&0xf0 == 0x90 || r.data[0] == 0xdc || r.data[0] == 0xdd)
}

// text, or bytes.
func (r *reader) text() []byte {
	first := r.byte()
	switch {
	case first&0xe0 == 0xa0:
		return r.take(int(first & 0x1f))
	case first == 0xd9 || first == 0xc4:
		return r.take(r.unsigned(1))
	case first == 0xda || first == 0xc5:
		return r.take(r.unsigned(2))
	case first == 0xdb || first == 0xc6:
		return r.take(r.unsigned(4))
	}
	r.broken = true
	return nil
}

func (r *reader) number() int64 {
	first := r.byte()
	switch {
	case first < 0x80:
		return int64(first)
	case first >= 0xcc && first <= 0xcf:
		return int64(r.unsigned(1 << (first - 0xcc)))
	case first == 0xd3:
		return int64(r.unsigned(8))
	}
	r.broken = true
	return 0
}

func (r *reader) skip() {
	if len(r.data) == 0 {
		r.broken = true
		return
	}
	first := r.data[0]
	switch {
	case first < 0x80, first >= 0xe0, first >= 0xc0 && first <= 0xc3:
		r.byte()
	case first&0xe0 == 0xa0, first >= 0xc4 && first <= 0xc6, first >= 0xd9 && first <= 0xdb:
		r.text()
	case first >= 0xcc && first <= 0xcf:
		r.number()
	case first == 0xca, first == 0xd2:
		r.take(5)
	case first == 0xcb:
		_ = math.Float64frombits(binary.BigEndian.Uint64(r.take(9)[1:]))
	case first == 0xd3:
		r.take(9)
	case r.isArray():
		for range r.length(0x90, 0x0f, 0xdc) {
			r.skip()
		}
	case first&0xf0 == 0x80:
		for range 2 * r.length(0x80, 0x0f, 0xde) {
			r.skip()
		}
	default:
		r.broken = true
	}
}
