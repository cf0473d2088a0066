package config

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// GrabFront says who stands between the clients and the grab service.
type GrabFront struct {
	TrustedProxies  []string `name:"trusted-proxies" placeholder:"CIDR,..." help:"Networks or addresses of the proxies in front, comma separated. Only a request from one of them may name its client's address in forwarded-header."`
	ForwardedHeader string   `name:"forwarded-header" default:"x-forwarded-for" enum:"x-forwarded-for,forwarded" help:"Header in which all those proxies name the client: x-forwarded-for, or forwarded (RFC 7239). The other one is never read, because they pass on what a client wrote there."`
	GatewayKeys     []string `name:"gateway-keys" secret:"" minlen:"16" placeholder:"KEY,..." help:"Keys of gateways that may grab for any user with POST /v1/sales/{sale_id}/grabs:batch, and of backends that may deduct from quotas, comma separated. They send one as a bearer token. Empty refuses all."`
}

// Validate checks the networks.
func (f *GrabFront) Validate() error {
	_, err := f.Proxies()
	return err
}

// Proxies returns the networks of the trusted proxies.
func (f *GrabFront) Proxies() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range f.TrustedProxies {
		one, err := parseNetwork(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("--trusted-proxies %s: must be a network such as 10.0.0.0/8 or an address, and not everything", text)
		}
		all = append(all, one)
	}
	return all, nil
}

var errEverything = errors.New("a network of everything")

func parseNetwork(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	network, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	if network.Addr().Is4In6() && network.Bits() >= mappedBits {
		network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-mappedBits)
	}
	if network.Bits() == 0 {
		return netip.Prefix{}, errEverything // it would believe every client
	}
	return network.Masked(), nil
}

// mappedBits is how many bits of an IPv6 address come before an IPv4 one in it.
const mappedBits = 96
