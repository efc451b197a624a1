package main

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The hub has two streams, in both directions, as the seed's notification service has one: of the sender, whose messages
// begin with the number of the device, and of a device, which says its own number first. A device answers each message
// with the number that it begins with. Messages are protobuf's BytesValue.
var (
	hubDevice = grpc.StreamDesc{StreamName: "Device", Handler: serveDevice, ServerStreams: true, ClientStreams: true}
	hubSender = grpc.StreamDesc{StreamName: "Sender", Handler: serveSender, ServerStreams: true, ClientStreams: true}
	hubDesc   = grpc.ServiceDesc{
		ServiceName: "peers.Hub", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{hubDevice, hubSender},
	}
)

// Messages that wait for one stream; beyond that the sender waits.
const hubQueue = 1 << 17

type hub struct {
	mutex   sync.RWMutex
	devices map[int]chan *wrapperspb.BytesValue
	acks    chan *wrapperspb.BytesValue
	count   atomic.Int64
}

func newHub() *hub {
	return &hub{devices: map[int]chan *wrapperspb.BytesValue{}, acks: make(chan *wrapperspb.BytesValue, hubQueue)}
}

func serveDevice(server any, stream grpc.ServerStream) error {
	hub := server.(*hub)
	first := &wrapperspb.BytesValue{}
	if err := stream.RecvMsg(first); err != nil {
		return err
	}
	device, err := strconv.Atoi(string(first.Value))
	if err != nil {
		return err
	}
	queue := make(chan *wrapperspb.BytesValue, hubQueue)
	hub.mutex.Lock()
	hub.devices[device] = queue
	hub.mutex.Unlock()
	hub.count.Add(1)
	if err := stream.SendMsg(first); err != nil {
		return err
	}
	go func() {
		for {
			select {
			case message := <-queue:
				if stream.SendMsg(message) != nil {
					return
				}
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		ack := &wrapperspb.BytesValue{}
		if err := stream.RecvMsg(ack); err != nil {
			return err
		}
		hub.acks <- ack
	}
}

func (hub *hub) send(device int, body []byte) error {
	hub.mutex.RLock()
	queue := hub.devices[device]
	hub.mutex.RUnlock()
	if queue == nil {
		return fmt.Errorf("no device %d", device)
	}
	queue <- &wrapperspb.BytesValue{Value: body}
	return nil
}

func serveSender(server any, stream grpc.ServerStream) error {
	hub := server.(*hub)
	go func() {
		for {
			select {
			case ack := <-hub.acks:
				if stream.SendMsg(ack) != nil {
					return
				}
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		message := &wrapperspb.BytesValue{}
		if err := stream.RecvMsg(message); err != nil {
			return err
		}
		if err := hub.send(int(binary.BigEndian.Uint32(message.Value)), message.Value[4:]); err != nil {
			return err
		}
	}
}

func serveGRPC(arguments []string) error {
	flags := flag.NewFlagSet("grpc", flag.ContinueOnError)
	address := flags.String("address", "", "to listen at")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if err := listenHub(newHub(), *address); err != nil {
		return err
	}
	return waitForEnd()
}

func listenHub(hub *hub, address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	server.RegisterService(&hubDesc, hub)
	go func() { _ = server.Serve(listener) }()
	return nil
}

func dialHub(address string, desc *grpc.StreamDesc) (*grpc.ClientConn, grpc.ClientStream, error) {
	connection, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, nil, err
	}
	stream, err := connection.NewStream(context.Background(), desc, "/peers.Hub/"+desc.StreamName)
	return connection, stream, err
}

// grpcDevices connects a crowd; each message is given to `received`, then answered.
func grpcDevices(address string, devices int, received func(device int, body []byte), ended func(error)) ([]*grpc.ClientConn, error) {
	connections := make([]*grpc.ClientConn, devices)
	return connections, together(devices, func(device int) error {
		connection, stream, err := dialHub(address, &hubDevice)
		if err != nil {
			return err
		}
		connections[device] = connection
		message := &wrapperspb.BytesValue{Value: []byte(strconv.Itoa(device))}
		if err := stream.SendMsg(message); err != nil {
			return err
		}
		if err := stream.RecvMsg(message); err != nil {
			return err
		}
		go func() {
			for {
				message := &wrapperspb.BytesValue{}
				if err := stream.RecvMsg(message); err != nil {
					ended(err)
					return
				}
				received(device, message.Value)
				if err := stream.SendMsg(&wrapperspb.BytesValue{Value: message.Value[:digits]}); err != nil {
					ended(err)
					return
				}
			}
		}()
		return nil
	})
}

// grpcLink is a sender beside the hub.
type grpcLink struct {
	connections []*grpc.ClientConn
	stream      grpc.ClientStream
}

func dialGRPC(crowd *crowd, options linkOptions) (link, error) {
	connections, err := grpcDevices(options.address, options.devices, crowd.arrive, crowd.fail)
	if err != nil {
		return nil, err
	}
	connection, stream, err := dialHub(options.address, &hubSender)
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			ack := &wrapperspb.BytesValue{}
			if err := stream.RecvMsg(ack); err != nil {
				crowd.fail(err)
				return
			}
			number, err := strconv.Atoi(string(ack.Value))
			if err != nil {
				crowd.fail(err)
			}
			crowd.acknowledge(number)
		}
	}()
	return &grpcLink{append(connections, connection), stream}, nil
}

func (made *grpcLink) Send(device, _ int, body []byte) error {
	value := append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(device)), body...)
	return made.stream.SendMsg(&wrapperspb.BytesValue{Value: value})
}

func (*grpcLink) Flush() error { return nil }

func (made *grpcLink) Close() {
	for _, connection := range made.connections {
		if connection != nil {
			_ = connection.Close()
		}
	}
}

// directLink is the server itself that sends, as in the seed's own test; its devices are another process, which says
// nothing but what it acknowledges.
type directLink struct {
	hub    *hub
	crowd  *crowd
	child  *exec.Cmd
	number []byte
}

func listenGRPC(crowd *crowd, options linkOptions) (link, error) {
	made := &directLink{hub: newHub(), crowd: crowd}
	if err := listenHub(made.hub, options.address); err != nil {
		return nil, err
	}
	made.child = exec.Command(os.Args[0], "grpc-crowd", "-address", options.address, "-devices", strconv.Itoa(options.devices))
	made.child.Stderr = os.Stderr
	input, err := made.child.StdinPipe()
	if err != nil {
		return nil, err
	}
	_ = input
	if err := made.child.Start(); err != nil {
		return nil, err
	}
	for until := time.Now().Add(30 * time.Second); int(made.hub.count.Load()) < options.devices; {
		if time.Now().After(until) {
			return nil, fmt.Errorf("of %d devices %d came", options.devices, made.hub.count.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
	go func() {
		for ack := range made.hub.acks {
			number, err := strconv.Atoi(string(ack.Value))
			if err != nil {
				crowd.fail(err)
			}
			// The device is elsewhere: that it has the message is known by this alone.
			crowd.arrive(int(crowd.device[number]), ack.Value)
			crowd.acknowledge(number)
		}
	}()
	return made, nil
}

func (made *directLink) Send(device, _ int, body []byte) error { return made.hub.send(device, body) }

func (*directLink) Flush() error { return nil }

func (made *directLink) Close() {
	_ = made.child.Process.Kill()
	_ = made.child.Wait()
}

func runGRPCCrowd(arguments []string) error {
	flags := flag.NewFlagSet("grpc-crowd", flag.ContinueOnError)
	address := flags.String("address", "", "of the hub")
	devices := flags.Int("devices", 1, "connections")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if _, err := grpcDevices(*address, *devices, func(int, []byte) {}, func(error) {}); err != nil {
		return err
	}
	return waitForEnd()
}
