// Peers drives what others have written on the work that Tidings does: see ../README.md. Each command is a process of
// its own; it reads requests from standard input, a JSON object a line, responds to each with one, and ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

var commands = map[string]func(arguments []string) error{
	"river":      runRiver,
	"jetstream":  runJetStream,
	"deliver":    runDeliver,
	"mochi":      serveMochi,
	"centrifuge": serveCentrifuge,
	"grpc":       serveGRPC,
	"grpc-crowd": runGRPCCrowd,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "which of the peers?")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, os.Args[1]+":", err)
		os.Exit(1)
	}
}

// A request of the driver: what to do, and for how long.
type request struct {
	Do       string  `json:"do"`
	Seconds  float64 `json:"seconds"`
	Clients  int     `json:"clients"`
	Rate     int     `json:"rate"`
	Window   int     `json:"window"`
	Size     int     `json:"size"`
	Messages int     `json:"messages"`
	Samples  int     `json:"samples"`
	Expect   int     `json:"expect"`
	Record   string  `json:"record"`
}

// serveRequests reports that this process is ready, then carries out requests until standard input ends.
func serveRequests(carryOut func(request) (any, error)) error {
	say := json.NewEncoder(os.Stdout)
	if err := say.Encode(map[string]bool{"ready": true}); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var given request
		if err := json.Unmarshal(lines.Bytes(), &given); err != nil {
			return err
		}
		result, err := carryOut(given)
		if err != nil {
			return err
		}
		if err := say.Encode(result); err != nil {
			return err
		}
	}
	return lines.Err()
}

// waitForEnd is for servers: it returns when standard input ends.
func waitForEnd() error {
	return serveRequests(func(request) (any, error) { return nil, fmt.Errorf("a server accepts no requests") })
}
