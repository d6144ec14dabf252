package main

import (
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/certs"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A setting that is not passed on would be silently ignored.
func TestEveryOptionOfTheProxyIsSet(t *testing.T) {
	grace := time.Second
	cfg := NewConfig()
	cfg.Lock.Grace, cfg.Lock.MaxHold, cfg.Drain.Delay = &grace, time.Minute, time.Second
	cfg.Upstream.User, cfg.Upstream.Password = "user", "password"
	cfg.Sentinel.User, cfg.Sentinel.Password, cfg.Sentinel.TLS, cfg.Upstream.Map = "user", "password", true, []string{"a=b"}
	cfg.Upstream.TLS = true
	cfg.Lock.Sync, cfg.Lock.Reentry = 2, "owner"
	cfg.Listen = append(cfg.Listen, "tls:127.0.0.1:0")
	cfg.TLS.CertFile, cfg.TLS.KeyFile = redistest.NewAuthority(t).Issue(t, "proxy")
	cfg.TLS.AuthClients = certs.AuthNo
	store, err := certs.New(certOptions(cfg, zap.NewNop()))
	if err != nil {
		t.Fatal(err)
	}
	notConfigured := map[string]bool{
		"Sockets": true, "LogDropped": true, "Upstream.Logger": true, "Upstream.lookPeriod": true,
		"Upstream.Lent": true, "Upstream.Exposed": true, "Upstream.Demanded": true, // the server sets them
		"Upstream.BuiltinCommands": true, // set with the address of the embedded Redis
	}
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for field, value := range v.Fields() {
			name := prefix + field.Name
			switch {
			case notConfigured[name]:
			case name == "TLS": // a struct of others
				if value.IsZero() {
					t.Errorf("option %s is not set", name)
				}
			case value.Kind() == reflect.Struct:
				walk(name+".", value)
			case value.IsZero():
				t.Errorf("option %s is not set", name)
			}
		}
	}
	walk("", reflect.ValueOf(proxyOptions(cfg, 1<<30, store, zap.NewNop())))
}

func TestZeroOfASizeIsNoLimit(t *testing.T) {
	cfg := NewConfig()
	cfg.ClientOutputLimit = 0
	opts := proxyOptions(cfg, 1<<30, new(certs.Store), zap.NewNop())
	if opts.Limits.Output < 1<<31-1 {
		t.Errorf("output limit %d, want none", opts.Limits.Output)
	}
}

func TestAReloadThatDoesNotEndIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		readable := make(chan struct{})
		s := &service{log: zap.New(core), again: func() (Config, error) {
			<-readable
			return Config{}, errors.New("it is read now")
		}}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.Reload()
		}()
		late := func() int { return logs.FilterMessageSnippet("has not ended").Len() }
		time.Sleep(reloadLimit - 1)
		synctest.Wait()
		if late() != 0 {
			t.Error("it is reported too early")
		}
		time.Sleep(time.Minute)
		if late() != 1 {
			t.Errorf("it is reported %d times", late())
		}
		close(readable)
		<-ended
		if logs.FilterMessage("configuration not reloaded, nothing has changed").Len() != 1 {
			t.Error("its outcome is not reported")
		}
	})
}
