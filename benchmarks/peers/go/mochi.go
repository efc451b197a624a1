package main

import (
	"flag"
	"io"
	"log/slog"
	"math"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/hooks/auth"
	"github.com/mochi-mqtt/server/v2/listeners"
)

// serveMochi is the broker mochi-mqtt, with room for what is under way here.
func serveMochi(arguments []string) error {
	flags := flag.NewFlagSet("mochi", flag.ContinueOnError)
	address := flags.String("address", "", "to listen at")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumClientWritesPending = 1 << 18
	capabilities.MaximumInflight, capabilities.ReceiveMaximum = math.MaxUint16, math.MaxUint16
	server := mqtt.New(&mqtt.Options{
		Capabilities: capabilities, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err := server.AddHook(new(auth.AllowHook), nil); err != nil {
		return err
	}
	if err := server.AddListener(listeners.NewTCP(listeners.Config{ID: "tcp", Address: *address})); err != nil {
		return err
	}
	if err := server.Serve(); err != nil {
		return err
	}
	return waitForEnd()
}
