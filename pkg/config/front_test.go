package config

import (
	"fmt"
	"testing"
)

func TestTrustedProxiesAreNetworksOrAddresses(t *testing.T) {
	var grab Grab
	path := writeFile(t, "trusted-proxies: [10.1.2.3/8, 192.0.2.1, 'fd00::5/8', '::ffff:172.16.0.0/108', '::ffff:192.0.2.9']\n")
	if _, err := parse(t, &grab, "--trust-user-header", "--config="+path); err != nil {
		t.Fatal(err)
	}
	networks, err := grab.Front.Proxies()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(networks), "[10.0.0.0/8 192.0.2.1/32 fd00::/8 172.16.0.0/12 192.0.2.9/32]"; got != want {
		t.Errorf("networks %s, want %s", got, want)
	}
}
