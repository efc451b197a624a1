package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/centrifugal/centrifuge"
	"github.com/gorilla/websocket"
)

// serveCentrifuge is the library that Centrifugo is built of, with everybody allowed to publish and subscribe.
func serveCentrifuge(arguments []string) error {
	flags := flag.NewFlagSet("centrifuge", flag.ContinueOnError)
	address := flags.String("address", "", "to listen at")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	node, err := centrifuge.New(centrifuge.Config{ClientQueueMaxSize: 256 << 20})
	if err != nil {
		return err
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, answer centrifuge.SubscribeCallback) {
			answer(centrifuge.SubscribeReply{}, nil)
		})
		client.OnPublish(func(_ centrifuge.PublishEvent, answer centrifuge.PublishCallback) {
			answer(centrifuge.PublishReply{}, nil)
		})
	})
	if err := node.Run(); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{}))
	go func() { _ = http.Serve(listener, mux) }()
	return waitForEnd()
}

// centrifugeLink speaks Centrifuge's JSON protocol over WebSocket. Centrifuge tells the sender that a publication was
// taken, and nothing about the device; with acks, devices publish what they got.
type centrifugeLink struct {
	sockets []*centrifugeSocket
	waiting []byte
}

type centrifugeSocket struct {
	mutex  sync.Mutex
	socket *websocket.Conn
}

func (made *centrifugeSocket) write(data []byte) error {
	made.mutex.Lock()
	defer made.mutex.Unlock()
	return made.socket.WriteMessage(websocket.TextMessage, data)
}

func dialCentrifuge(crowd *crowd, options linkOptions) (link, error) {
	made := &centrifugeLink{sockets: make([]*centrifugeSocket, options.devices+1)}
	err := together(options.devices, func(device int) (err error) {
		made.sockets[device], err = centrifugeDial(crowd, options.address, fmt.Sprintf("d%d", device),
			func(socket *centrifugeSocket, bodies [][]byte) error {
				var answer []byte
				for _, body := range bodies {
					crowd.arrive(device, body)
					if options.acks {
						answer = centrifugePublish(answer, "ack", body[:digits])
					}
				}
				if len(answer) == 0 {
					return nil
				}
				return socket.write(answer)
			})
		return err
	})
	if err != nil {
		return nil, err
	}
	made.sockets[options.devices], err = centrifugeDial(crowd, options.address, "ack",
		func(_ *centrifugeSocket, bodies [][]byte) error {
			for _, body := range bodies {
				number, err := strconv.Atoi(string(body[:digits]))
				if err != nil {
					return err
				}
				crowd.acknowledge(number)
			}
			return nil
		})
	return made, err
}

func centrifugeDial(
	crowd *crowd, address, channel string, received func(*centrifugeSocket, [][]byte) error,
) (*centrifugeSocket, error) {
	socket, _, err := websocket.DefaultDialer.Dial("ws://"+address+"/connection/websocket", nil)
	if err != nil {
		return nil, err
	}
	made, ready := &centrifugeSocket{socket: socket}, make(chan error, 1)
	if err := made.write(fmt.Appendf(nil, `{"id":1,"connect":{}}`+"\n"+`{"id":2,"subscribe":{"channel":"%s"}}`, channel)); err != nil {
		return nil, err
	}
	go func() {
		isReady := false
		for {
			_, data, err := socket.ReadMessage()
			var bodies [][]byte
			if err == nil {
				var subscribed, pinged bool
				bodies, subscribed, pinged, err = centrifugeRead(data)
				if subscribed && !isReady {
					isReady = true
					ready <- nil
				}
				if pinged {
					err = made.write([]byte("{}"))
				}
			}
			if err == nil {
				err = received(made, bodies)
			}
			if err != nil {
				crowd.fail(err)
				ready <- err
				return
			}
		}
	}()
	return made, <-ready
}

var centrifugeData = []byte(`"data":"`)

// centrifugeRead finds what was published, an answer to the subscription, and pings, in the lines of one message.
func centrifugeRead(message []byte) (bodies [][]byte, subscribed, pinged bool, err error) {
	for line := range bytes.SplitSeq(message, []byte("\n")) {
		switch {
		case bytes.HasPrefix(line, []byte(`{"push"`)):
			if at := bytes.Index(line, centrifugeData); at >= 0 {
				bodies = append(bodies, line[at+len(centrifugeData):])
			}
		case bytes.Equal(line, []byte("{}")):
			pinged = true
		case bytes.Contains(line, []byte(`"error"`)):
			return nil, false, false, fmt.Errorf("centrifuge: %s", line)
		case bytes.Contains(line, []byte(`"subscribe"`)):
			subscribed = true
		}
	}
	return bodies, subscribed, pinged, nil
}

func centrifugePublish(to []byte, channel string, body []byte) []byte {
	if len(to) > 0 {
		to = append(to, '\n')
	}
	return fmt.Appendf(to, `{"id":3,"publish":{"channel":"%s","data":"%s"}}`, channel, body)
}

func (made *centrifugeLink) Send(device, _ int, body []byte) error {
	made.waiting = centrifugePublish(made.waiting, "d"+strconv.Itoa(device), body)
	// A message of WebSocket has a limit on the other side.
	if len(made.waiting) > bufferBytes/2 {
		return made.Flush()
	}
	return nil
}

func (made *centrifugeLink) Flush() error {
	if len(made.waiting) == 0 {
		return nil
	}
	err := made.sockets[len(made.sockets)-1].write(made.waiting)
	made.waiting = made.waiting[:0]
	return err
}

func (made *centrifugeLink) Close() {
	for _, socket := range made.sockets {
		if socket != nil {
			_ = socket.socket.Close()
		}
	}
}
