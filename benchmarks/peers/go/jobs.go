package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const jobBytes = 200

// The role of this process: clients and workers, or one of both (../load.py).
const (
	enqueueRole = "enqueue"
	workRole    = "work"
)

func role() string { return os.Getenv("PEER_ROLE") }

// A jobRun is one run of a job queue: clients that enqueue one job after the other, each durable before the next, and
// workers that note what they were given.
type jobRun struct {
	mutex    sync.Mutex
	began    map[int]time.Time
	waits    []time.Duration
	started  time.Time
	moments  []time.Duration
	repeated int
	unknown  int
	lastDone time.Time
	next     atomic.Int64
	record   []int64
	arrived  map[int]bool
}

type jobFigures struct {
	Jobs     int      `json:"jobs"`
	Worked   int      `json:"worked"`
	Repeated int      `json:"repeated"`
	Unknown  int      `json:"unknown"`
	Left     int      `json:"left"`
	Seconds  float64  `json:"seconds"`
	Each     []int    `json:"per_second"`
	Enqueue  *summary `json:"enqueue_ms"`
	Work     *summary `json:"work_ms"`
}

// apartFigures are of a process that has only the clients, or only the workers.
type apartFigures struct {
	Jobs     int      `json:"jobs"`
	Worked   int      `json:"worked"`
	Repeated int      `json:"repeated"`
	Left     int      `json:"left"`
	Enqueue  *summary `json:"enqueue_ms"`
}

func newJobRun() *jobRun { return &jobRun{began: map[int]time.Time{}, arrived: map[int]bool{}} }

// work notes that a worker was given a job.
func (run *jobRun) work(number int) {
	now := time.Now()
	run.mutex.Lock()
	defer run.mutex.Unlock()
	if role() == workRole {
		if run.arrived[number] {
			run.repeated++
			return
		}
		run.arrived[number] = true
		run.record = append(run.record, int64(number), now.UnixNano())
		return
	}
	began, known := run.began[number]
	switch {
	case !known:
		run.unknown++
	case began.IsZero():
		run.repeated++
	default:
		run.waits = append(run.waits, now.Sub(began))
		run.began[number] = time.Time{}
		run.lastDone = now
		run.moments = append(run.moments, now.Sub(run.started))
	}
}

// drive enqueues for so many seconds, waits until all has been worked, and until the store holds nothing of it.
func (run *jobRun) drive(
	ctx context.Context, given request, enqueue func(context.Context, int, string) error, left func(context.Context) (int, error),
) (any, error) {
	if role() == workRole {
		return run.collect(ctx, given, left)
	}
	body := strings.Repeat("x", jobBytes)
	started := time.Now()
	run.mutex.Lock()
	run.started = started
	run.mutex.Unlock()
	until := started.Add(time.Duration(given.Seconds * float64(time.Second)))
	took := make([][]time.Duration, given.Clients)
	failures := make(chan error, given.Clients)
	var clients sync.WaitGroup
	for client := range given.Clients {
		clients.Add(1)
		go func() {
			defer clients.Done()
			for time.Now().Before(until) {
				number, began := int(run.next.Add(1)), time.Now()
				run.mutex.Lock()
				run.began[number] = began
				if role() == enqueueRole {
					run.record = append(run.record, int64(number), began.UnixNano())
				}
				run.mutex.Unlock()
				if err := enqueue(ctx, number, body); err != nil {
					failures <- err
					return
				}
				took[client] = append(took[client], time.Since(began))
			}
		}()
	}
	clients.Wait()
	select {
	case err := <-failures:
		return nil, err
	default:
	}
	var all []time.Duration
	for _, times := range took {
		all = append(all, times...)
	}
	if role() == enqueueRole {
		clear(run.began)
		if err := run.write(given.Record); err != nil {
			return nil, err
		}
		return &apartFigures{Jobs: len(all), Enqueue: summarise(all)}, nil
	}
	remaining, err := run.drain(ctx, len(all), left)
	if err != nil {
		return nil, err
	}
	run.mutex.Lock()
	defer run.mutex.Unlock()
	figures := &jobFigures{
		len(all), len(run.waits), run.repeated, run.unknown, remaining, run.lastDone.Sub(started).Seconds(),
		perSecond(run.moments), summarise(all), summarise(run.waits),
	}
	run.waits, run.moments, run.repeated, run.unknown = nil, nil, 0, 0
	clear(run.began)
	return figures, nil
}

// collect waits in the workers' process until the expected jobs are worked and the store holds nothing of them.
func (run *jobRun) collect(
	ctx context.Context, given request, left func(context.Context) (int, error),
) (*apartFigures, error) {
	remaining, err := run.drain(ctx, given.Expect, left)
	if err != nil {
		return nil, err
	}
	run.mutex.Lock()
	defer run.mutex.Unlock()
	figures := &apartFigures{Worked: len(run.arrived), Repeated: run.repeated, Left: remaining}
	run.repeated = 0
	clear(run.arrived)
	return figures, run.write(given.Record)
}

// drain waits until so many jobs are worked; it returns the number of jobs that the store still holds.
func (run *jobRun) drain(ctx context.Context, jobs int, left func(context.Context) (int, error)) (int, error) {
	deadline := time.Now().Add(60 * time.Second)
	for run.worked() < jobs {
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("of %d jobs %d were worked", jobs, run.worked())
		}
		time.Sleep(2 * time.Millisecond)
	}
	remaining := 1
	for remaining > 0 && time.Now().Before(deadline) {
		var err error
		if remaining, err = left(ctx); err != nil {
			return 0, err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return remaining, nil
}

// write puts the pairs of job number and Unix nanoseconds into a file, and forgets them.
func (run *jobRun) write(path string) error {
	var data bytes.Buffer
	if err := binary.Write(&data, binary.NativeEndian, run.record); err != nil {
		return err
	}
	run.record = nil
	return os.WriteFile(path, data.Bytes(), 0o600)
}

func (run *jobRun) worked() int {
	run.mutex.Lock()
	defer run.mutex.Unlock()
	return max(len(run.waits), len(run.arrived))
}
