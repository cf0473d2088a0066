package config

import (
	"fmt"
	"net"
	"strconv"
	"time"
)

// HTTP says where a service listens.
type HTTP struct {
	Listen          string        `name:"listen" default:"${listen}" placeholder:"HOST:PORT" help:"Address of the service. Port 0 takes a free one."`
	AdminListen     string        `name:"admin-listen" placeholder:"HOST:PORT" help:"Address of a second listener for metrics and pprof. Without it there is no pprof, and metrics are on the main one."`
	DrainDelay      time.Duration `name:"drain-delay" default:"0s" min:"0s" max:"5m" help:"Time between leaving /readyz and closing the listener when the service stops, in which requests are served as before: set it to what the balancer takes to notice. 0s closes at once."`
	ShutdownTimeout time.Duration `name:"shutdown-timeout" default:"15s" min:"100ms" max:"10m" help:"Time for requests in flight to end when the service stops."`
}

// Validate checks both addresses.
func (h *HTTP) Validate() error {
	if err := checkAddress("listen", h.Listen); err != nil {
		return err
	}
	if h.AdminListen == "" {
		return nil
	}
	return checkAddress("admin-listen", h.AdminListen)
}

func checkAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--%s %s: must be HOST:PORT with a port from 0 to 65535", flag, address)
	}
	return nil
}
