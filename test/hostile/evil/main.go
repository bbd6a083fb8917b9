//go:build linux

// Command evil takes rung-guest's place in a sandbox and attacks the host's side of the protocol: what a program would do
// that has taken over the guest. The variable EVIL of the sandbox's environment says how; see acts in the files beside it.
// It harms nobody by itself: it only talks on its control channel.
package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rung-dev/rung/internal/sys/mux"
)

func main() {
	if err := run(); err != nil {
		os.Stderr.WriteString("evil: " + err.Error() + "\n")
		os.Exit(1)
	}
}

// control is the channel's descriptor, as the drivers pass it.
const control = 3

func run() error {
	if len(os.Args) != 3 || os.Args[1] != "serve" {
		return errors.New("usage: evil serve CONFIG")
	}
	var config struct {
		Env []string `json:"env"`
	}
	if err := json.Unmarshal([]byte(os.Args[2]), &config); err != nil {
		return err
	}
	how := ""
	for _, kv := range config.Env {
		if v, ok := strings.CutPrefix(kv, "EVIL="); ok {
			how = v
		}
	}
	f := os.NewFile(control, "control")
	conn, err := net.FileConn(f)
	if err != nil {
		return err
	}
	f.Close()
	if act, ok := channelActs()[how]; ok {
		act(conn)
		return nil
	}
	return serve(&channel{Conn: conn}, how)
}

// channel lets an act write frames of its own between the multiplexer's.
type channel struct {
	net.Conn
	mu sync.Mutex
}

func (c *channel) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Conn.Write(p)
}

// serve answers like a guest until the act's time comes.
func serve(c *channel, how string) error {
	l, err := mux.Listen(c)
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil // the holder has had enough
		}
		go answer(conn, c, how)
	}
}

// forever is longer than any test.
const forever = time.Hour
