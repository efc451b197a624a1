package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Every body begins with the number of its message, in so many digits.
const digits = 10

// A link is a protocol: one sender, and a crowd of devices with a connection each.
type link interface {
	// Send gives a body to the sender's connection, for one device. It may wait in a buffer until Flush.
	Send(device, number int, body []byte) error
	Flush() error
	Close()
}

// Links by the name of what is on the other side.
var links = map[string]func(crowd *crowd, options linkOptions) (link, error){
	"tidings":     dialTidings,
	"nats":        dialNATS,
	"mqtt":        dialMQTT,
	"centrifuge":  dialCentrifuge,
	"grpc":        dialGRPC,
	"grpc-direct": listenGRPC,
}

// What a link is made of. acks: does each device acknowledge what it gets, to the sender?
type linkOptions struct {
	address string
	devices int
	acks    bool
	tokens  map[string]string
}

// A crowd notes when each message left, arrived at its device and was acknowledged; by number.
type crowd struct {
	acks     bool
	started  time.Time
	sent     []int64
	arrived  []int64
	acked    []int64
	device   []int32
	arrivals atomic.Int64
	answers  atomic.Int64
	faults   atomic.Int64
	fault    atomic.Pointer[error]
	moved    chan struct{}
	mutex    sync.RWMutex
}

func (crowd *crowd) now() int64 { return int64(time.Since(crowd.started)) + 1 }

// fail says that a connection is no more.
func (crowd *crowd) fail(err error) {
	crowd.fault.CompareAndSwap(nil, &err)
	crowd.wake()
}

func (crowd *crowd) wake() {
	select {
	case crowd.moved <- struct{}{}:
	default:
	}
}

// arrive notes that a device was given a message; twice, or another's, is a fault.
func (crowd *crowd) arrive(device int, head []byte) {
	number, err := strconv.Atoi(string(head[:digits]))
	crowd.mutex.RLock()
	defer crowd.mutex.RUnlock()
	if err != nil || number >= len(crowd.arrived) || int(crowd.device[number]) != device ||
		!atomic.CompareAndSwapInt64(&crowd.arrived[number], 0, crowd.now()) {
		crowd.faults.Add(1)
		return
	}
	crowd.arrivals.Add(1)
	if !crowd.acks {
		crowd.wake()
	}
}

// acknowledge notes that the sender knows of it.
func (crowd *crowd) acknowledge(number int) {
	crowd.mutex.RLock()
	defer crowd.mutex.RUnlock()
	if number >= len(crowd.acked) || !atomic.CompareAndSwapInt64(&crowd.acked[number], 0, crowd.now()) {
		crowd.faults.Add(1)
		return
	}
	crowd.answers.Add(1)
	crowd.wake()
}

// done is how many messages are through: acknowledged, or where nobody acknowledges, arrived.
func (crowd *crowd) done() int {
	if crowd.acks {
		return int(crowd.answers.Load())
	}
	return int(crowd.arrivals.Load())
}

// reset begins again with room for so many messages.
func (crowd *crowd) reset(messages int) {
	crowd.mutex.Lock()
	defer crowd.mutex.Unlock()
	crowd.sent, crowd.arrived, crowd.acked = make([]int64, messages), make([]int64, messages), make([]int64, messages)
	crowd.device = make([]int32, messages)
	crowd.arrivals.Store(0)
	crowd.answers.Store(0)
}

// wait returns when so many messages are through. A message that gets lost ends the run.
func (crowd *crowd) wait(messages int) error {
	timer := time.NewTimer(60 * time.Second)
	defer timer.Stop()
	for crowd.done() < messages {
		if fault := crowd.fault.Load(); fault != nil {
			return *fault
		}
		select {
		case <-crowd.moved:
		case <-time.After(20 * time.Millisecond):
		case <-timer.C:
			return fmt.Errorf("of %d messages %d came through", messages, crowd.done())
		}
	}
	return nil
}

type deliverFigures struct {
	Messages int      `json:"messages"`
	Arrived  int      `json:"arrived"`
	Acked    int      `json:"acked"`
	Faults   int      `json:"faults"`
	Seconds  float64  `json:"seconds"`
	Each     []int    `json:"per_second"`
	Device   *summary `json:"device_ms"`
	Ack      *summary `json:"ack_ms"`
}

type delivery struct {
	crowd   *crowd
	link    link
	devices int
	body    []byte
}

// runDeliver drives one protocol: requests "rate", "most" and "table".
func runDeliver(arguments []string) error {
	flags := flag.NewFlagSet("deliver", flag.ContinueOnError)
	protocol := flags.String("protocol", "", "which")
	options := linkOptions{}
	flags.StringVar(&options.address, "address", "", "of the server")
	flags.IntVar(&options.devices, "devices", 1000, "connections")
	flags.BoolVar(&options.acks, "acks", true, "devices acknowledge")
	tokens := flags.String("tokens", "", "a file with the tokens of numbers, the sender's first")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if *tokens != "" {
		data, err := os.ReadFile(*tokens)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(data, &options.tokens); err != nil {
			return err
		}
	}
	dial := links[*protocol]
	if dial == nil {
		return errors.New("no such protocol")
	}
	crowd := &crowd{acks: options.acks, started: time.Now(), moved: make(chan struct{}, 1)}
	crowd.reset(1)
	link, err := dial(crowd, options)
	if err != nil {
		return err
	}
	defer link.Close()
	run := &delivery{crowd: crowd, link: link, devices: options.devices}
	return serveRequests(func(given request) (any, error) {
		run.body = make([]byte, given.Size)
		for index := range run.body {
			run.body[index] = 'x'
		}
		switch given.Do {
		case "rate":
			return run.steady(given)
		case "most":
			return run.most(given)
		case "table":
			return run.table(given)
		}
		return nil, errors.New("no such request")
	})
}

func (run *delivery) send(device, number int) error {
	body := make([]byte, len(run.body))
	copy(body, run.body)
	copy(body, fmt.Sprintf("%0*d", digits, number))
	run.crowd.device[number] = int32(device)
	atomic.StoreInt64(&run.crowd.sent[number], run.crowd.now())
	return run.link.Send(device, number, body)
}

// steady sends at a rate, each message on its own, to the devices in turn.
func (run *delivery) steady(given request) (any, error) {
	messages := int(float64(given.Rate) * given.Seconds)
	run.crowd.reset(messages)
	started := time.Now()
	for number := range messages {
		due := started.Add(time.Duration(float64(number) / float64(given.Rate) * float64(time.Second)))
		if ahead := time.Until(due); ahead > 0 {
			time.Sleep(ahead)
		}
		if err := run.send(number%run.devices, number); err != nil {
			return nil, err
		}
		if err := run.link.Flush(); err != nil {
			return nil, err
		}
	}
	return run.finish(messages, started)
}

// most sends as fast as it goes with so many messages under way.
func (run *delivery) most(given request) (any, error) {
	run.crowd.reset(1 + int(given.Seconds*200_000))
	started := time.Now()
	until := started.Add(time.Duration(given.Seconds * float64(time.Second)))
	number := 0
	for time.Now().Before(until) && number < len(run.crowd.sent)-given.Window {
		room := given.Window - (number - run.crowd.done())
		// By quarters of the window: one wake-up for many.
		if room < given.Window/4 {
			if err := run.link.Flush(); err != nil {
				return nil, err
			}
			if err := run.crowd.wait(number - given.Window*3/4); err != nil {
				return nil, err
			}
			continue
		}
		for range room {
			if err := run.send(number%run.devices, number); err != nil {
				return nil, err
			}
			number++
		}
	}
	if err := run.link.Flush(); err != nil {
		return nil, err
	}
	return run.finish(number, started)
}

func (run *delivery) finish(messages int, started time.Time) (any, error) {
	if err := run.crowd.wait(messages); err != nil {
		return nil, err
	}
	seconds := time.Since(started).Seconds()
	// Who acknowledges from disk may do so before the device has it.
	for until := time.Now().Add(10 * time.Second); int(run.crowd.arrivals.Load()) < messages; {
		if time.Now().After(until) {
			return nil, fmt.Errorf("of %d messages %d arrived", messages, run.crowd.arrivals.Load())
		}
		time.Sleep(time.Millisecond)
	}
	var toDevice, toAck, moments []time.Duration
	begin := int64(started.Sub(run.crowd.started))
	for number := range messages {
		moments = append(moments, time.Duration(run.crowd.arrived[number]-begin))
		toDevice = append(toDevice, time.Duration(run.crowd.arrived[number]-run.crowd.sent[number]))
		if run.crowd.acks {
			toAck = append(toAck, time.Duration(run.crowd.acked[number]-run.crowd.sent[number]))
		}
	}
	return deliverFigures{
		messages, int(run.crowd.arrivals.Load()), int(run.crowd.answers.Load()), int(run.crowd.faults.Load()), seconds,
		perSecond(moments), summarise(toDevice), summarise(toAck),
	}, nil
}

// table sends so many messages to each of the first devices at the same time, and says how long it took until a device
// had all of its own acknowledged: the mean over devices and samples, in milliseconds.
func (run *delivery) table(given request) (any, error) {
	var sum time.Duration
	started := time.Now()
	for range given.Samples {
		total := given.Messages * given.Clients
		run.crowd.reset(total)
		began := run.crowd.now()
		for round := range given.Messages {
			for device := range given.Clients {
				if err := run.send(device, round*given.Clients+device); err != nil {
					return nil, err
				}
			}
			if round%16 == 15 || round == given.Messages-1 {
				if err := run.link.Flush(); err != nil {
					return nil, err
				}
			}
		}
		if err := run.crowd.wait(total); err != nil {
			return nil, err
		}
		ends := run.crowd.acked
		if !run.crowd.acks {
			ends = run.crowd.arrived
		}
		for device := range given.Clients {
			last := int64(0)
			for round := range given.Messages {
				last = max(last, ends[round*given.Clients+device])
			}
			sum += time.Duration(last - began)
		}
	}
	mean := sum / time.Duration(given.Samples*given.Clients)
	return map[string]any{
		"mean_ms": milliseconds(mean), "faults": run.crowd.faults.Load(),
		"messages": given.Samples * given.Messages * given.Clients, "seconds": time.Since(started).Seconds(),
	}, nil
}

// together runs `each` for every device, a few at a time, and returns the first error.
func together(devices int, each func(device int) error) error {
	var group sync.WaitGroup
	places, failures := make(chan struct{}, 32), make(chan error, devices)
	for device := range devices {
		group.Add(1)
		places <- struct{}{}
		go func() {
			defer group.Done()
			defer func() { <-places }()
			if err := each(device); err != nil {
				failures <- err
			}
		}()
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}
