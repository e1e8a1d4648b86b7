package config

import (
	"net/netip"
	"testing"
)

func TestNetworksThatTogetherAreEveryAddress(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list  []string
		every bool
	}{
		{[]string{"0.0.0.0/1", "128.0.0.0/1"}, true},
		{[]string{"128.0.0.0/1", "10.0.0.0/8", "0.0.0.0/1"}, true},
		{[]string{"128.0.0.0/2", "192.0.0.0/2", "64.0.0.0/2", "0.0.0.0/2"}, true},
		{[]string{"0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/3"}, true}, // the rest contains no address of a client
		{[]string{"1.0.0.0/8", "2.0.0.0/7", "4.0.0.0/6", "8.0.0.0/7", "11.0.0.0/8", "12.0.0.0/6", "16.0.0.0/4", "32.0.0.0/3", "64.0.0.0/2", "128.0.0.0/1"}, true},
		{[]string{"0.0.0.0/1", "128.0.0.0/2", "192.0.0.0/4", "208.0.0.0/5", "216.0.0.0/6", "220.0.0.0/7", "222.0.0.0/8"}, false}, // 223.0.0.0/8 is missing
		{[]string{"0.0.0.0/1", "129.0.0.0/8"}, false},
		{[]string{"::ffff:0.0.0.0/97", "::ffff:128.0.0.0/97"}, true},
		{[]string{"::ffff:0.0.0.0/97", "128.0.0.0/1"}, true},
		{[]string{"::/1", "8000::/1"}, true},
		{[]string{"2000::/3"}, true}, // every routed address
		{[]string{"2000::/4", "3000::/4"}, true},
		{[]string{"2000::/4", "3000::/5"}, false},
		{[]string{"::/1", "0.0.0.0/1"}, true},
		{[]string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.1", "fd00::/8", "::1", "203.0.113.7"}, false},
		{nil, false},
	} {
		var list []netip.Prefix
		for _, text := range c.list {
			p, err := parsePrefix(text)
			if err != nil {
				t.Fatal(err)
			}
			list = append(list, p)
		}
		if got := everyPublicAddress(list); (got != nil) != c.every {
			t.Errorf("%v: every %v (%v), want %v", c.list, got != nil, got, c.every)
		}
	}
}

func TestTheIPv6FormOfAnIPv4NetworkIsThatNetwork(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"::ffff:10.0.0.0/104": "10.0.0.0/8", "::ffff:0:0/96": "0.0.0.0/0", "::ffff:192.0.2.1": "192.0.2.1/32", "::/1": "::/1", "192.0.2.1": "192.0.2.1/32",
	} {
		if got, err := parsePrefix(text); err != nil || got.String() != want {
			t.Errorf("%s is %s (%v), want %s", text, got, err, want)
		}
	}
}

func TestNumbersAreHostsAsTheLibraryReadsThem(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]reach{
		"134744072": reachPublic, "0x08080808": reachPublic, "0X08080808": reachPublic, "010.8.8.8": reachPublic, "01002004010": reachPublic, "8.525320": reachPublic,
		"8.8.2056": reachPublic, "134744072.": reachPublic, "2130706433": reachLocal, "0x7f.1": reachLocal, "0177.0.0.1": reachLocal, "0": reachPublic,
		"167772161": reachPrivate, "012.1": reachPrivate, "0xc0a80001": reachPrivate, "4294967296": reachPublic, "1.2.3.4.5": reachPublic, "09.1": reachPublic,
		"1.2.3.256": reachPublic, "db1": reachPrivate, "db": reachPrivate, "0xdb.internal": reachPrivate, "x.8": reachPublic,
	} {
		if got := hostReach(host); got != want {
			t.Errorf("%s has reach %d, want %d", host, got, want)
		}
	}
}
