package main

import (
	"errors"
	"fmt"

	"github.com/doorbuster/doorbuster/pkg/servers"
)

// stage is what a demonstration runs on: embedded backends, or real servers.
type stage interface {
	// arguments are the flags of dev that name the backends.
	arguments() []string
	// opened hands over the instance that runs on the stage.
	opened(i *instance)
	// wipe makes Redis lose everything.
	wipe() error
	// what tells how.
	what() string
	close()
}

func newStage(really bool, sayf func(format string, args ...any)) (stage, error) {
	if !really {
		sayf("Backends, in this process: nats-server (JetStream on disk), SQLite, miniredis. Development only; see --real.")
		return &embeddedStage{}, nil
	}
	sayf("Starting a real redis-server, MariaDB and nats-server ...")
	s := &realStage{}
	if err := s.start(); err != nil {
		s.close()
		return nil, err
	}
	sayf("Backends: redis-server at %s, %s at %s, nats-server at %s.", s.redis.Addr(), s.mysql.Name(), s.mysql.Addr(), s.nats.Addr())
	return s, nil
}

type embeddedStage struct{ shop *instance }

func (s *embeddedStage) arguments() []string { return nil }
func (s *embeddedStage) opened(i *instance)  { s.shop = i }
func (s *embeddedStage) what() string        { return "FLUSHALL" }
func (s *embeddedStage) close()              {}

func (s *embeddedStage) wipe() error {
	s.shop.redis.Wipe()
	return nil
}

type realStage struct {
	redis *servers.Redis
	mysql *servers.MySQL
	nats  *servers.NATS
}

func (s *realStage) start() (err error) {
	if s.redis, err = servers.StartRedis(nil); err != nil {
		return err
	}
	if s.mysql, err = servers.StartMySQL(); err != nil {
		return err
	}
	s.nats, err = servers.StartNATS("")
	return err
}

func (s *realStage) arguments() []string {
	return []string{"--redis=" + s.redis.URL(), "--mysql=" + s.mysql.DSN("doorbuster"), "--nats=" + s.nats.URL()}
}

func (s *realStage) opened(*instance) {}
func (s *realStage) what() string     { return "SIGKILL of redis-server, restarted without its data" }

// close kills the servers; that one is gone already is fine.
func (s *realStage) close() {
	if s.nats != nil {
		_ = s.nats.Close()
	}
	if s.mysql != nil {
		_ = s.mysql.Close()
	}
	if s.redis != nil {
		_ = s.redis.Close()
	}
}

// wipe kills redis-server and starts it again on the same port; it keeps nothing on disk.
func (s *realStage) wipe() error {
	if err := errors.Join(s.redis.Kill(), s.redis.Start()); err != nil {
		return fmt.Errorf("restart redis-server: %w", err)
	}
	return nil
}
