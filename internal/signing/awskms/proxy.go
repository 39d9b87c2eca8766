package awskms

import (
	"net/http"
	"net/netip"
	"net/url"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
)

// nodeNets are the networks on which a node serves credentials over plain HTTP. The instance
// metadata service (IMDS) serves the credentials of the node. The Pod Identity agent serves the
// credentials of the node's pods.
var nodeNets = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("fd00:ec2::/32"),
}

// newHTTP returns the SDK's HTTP client. Requests to nodeNets bypass the proxy, because a proxy
// could read their unencrypted tokens and credentials.
func newHTTP() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.Proxy = nodeDirectly(t.Proxy) })
}

func nodeDirectly(proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	return func(r *http.Request) (*url.URL, error) {
		if ip, err := netip.ParseAddr(r.URL.Hostname()); err == nil {
			for _, node := range nodeNets {
				if node.Contains(ip.Unmap()) {
					return nil, nil
				}
			}
		}
		return proxy(r)
	}
}
