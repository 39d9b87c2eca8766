package ops

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fairpact/fairpact/e2e"
	"github.com/fairpact/fairpact/internal/dev/localservers"
	"github.com/fairpact/fairpact/internal/dev/localstack"
)

// The service connects to Postgres and Redis over TLS. Their certificates are from a private CA,
// for the name localhost. Postgres also requires a client certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	pg, err := localservers.StartPostgres(t.Context(), localservers.Options{})
	e2e.Must(t, err)
	t.Cleanup(func() { e2e.Must(t, pg.Close()) })
	plain, err := pg.EnsureDatabase(t.Context(), "fairpact")
	e2e.Must(t, err)
	own, other := newAuthority(t), newAuthority(t)
	keys := pg.DataDir() // Postgres and Redis run as the owner of this directory, so both can read its files
	own.issue(keys, "server", x509.Certificate{DNSNames: []string{"localhost"}})
	own.issue(keys, "client", x509.Certificate{Subject: pkix.Name{CommonName: "fairpact"}})
	write(t, keys, "ca.crt", own.pem)
	requireTLS(t, pg)
	port, err := localservers.FreePort()
	e2e.Must(t, err)
	redis, err := localservers.StartRedis(t.Context(), localservers.Options{Password: "secret", Settings: []string{
		fmt.Sprint("tls-port ", port), "tls-cert-file " + keys + "/server.crt", "tls-key-file " + keys + "/server.key", "tls-auth-clients no"}})
	e2e.Must(t, err)
	t.Cleanup(func() { e2e.Must(t, redis.Close()) })

	ca := func(a *authority) string { return "&sslrootcert=" + a.dir + "/ca.crt" }
	client := "&sslcert=" + keys + "/client.crt&sslkey=" + keys + "/client.key"
	url := func(host, query string) string {
		return strings.NewReplacer("@127.0.0.1:", "@"+host+":", "sslmode=disable", query).Replace(plain)
	}
	verified := url("localhost", "sslmode=verify-full"+ca(own)+client)
	stack := e2e.Own(t, func(o *localstack.Options) {
		o.DatabaseURL = verified
		o.RedisURL = fmt.Sprintf("rediss://:secret@localhost:%d/0", port)
		o.Env[""] = append(o.Env[""], "SSL_CERT_DIR="+own.dir)
	})
	c := e2e.NewClient(t, stack.BaseURL())
	e2e.RequireIndependentVerdict(t, c, c.ComputedDeal().Certified(e2e.DefaultTimeout), true)
	e2e.Eventually(t, "deal-api reaches Redis", e2e.DefaultTimeout, func() bool {
		return e2e.Sum(e2e.Scrape(t, stack, localstack.DealAPI)["fairpact_redis_up"]) == 1
	})
	e2e.Must(t, stack.Restart(t.Context(), localstack.DealAPI, "SSL_CERT_DIR="+other.dir))
	e2e.Eventually(t, "deal-api refuses another CA of Redis, and the log says so", e2e.DefaultTimeout, func() bool {
		text, err := os.ReadFile(stack.Log(localstack.DealAPI))
		e2e.Must(t, err)
		return bytes.Contains(text, []byte("certificate signed by unknown authority"))
	})

	for name, tt := range map[string]struct{ url, says string }{
		"verified":                {verified, ""},
		"the CA alone":            {url("127.0.0.1", "sslmode=verify-ca"+ca(own)+client), ""},
		"another CA":              {url("localhost", "sslmode=verify-full"+ca(other)+client), "certificate signed by unknown authority"},
		"another CA, no name":     {url("localhost", "sslmode=verify-ca"+ca(other)+client), "certificate signed by unknown authority"},
		"the system's CAs":        {url("localhost", "sslmode=verify-full"+client), "certificate signed by unknown authority"},
		"another name":            {url("127.0.0.1", "sslmode=verify-full"+ca(own)+client), "cannot validate certificate for 127.0.0.1"},
		"no client certificate":   {url("localhost", "sslmode=verify-full"+ca(own)), "connection requires a valid client certificate"},
		"no TLS":                  {url("localhost", "sslmode=disable"), "no encryption"},
		"a file that is missing":  {url("localhost", "sslmode=verify-full&sslrootcert=/none/ca.crt"), "/none/ca.crt"},
		"a setting that is wrong": {url("localhost", "sslmode=full"), "sslmode"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, command := range [][]string{{"migrate"}, {"log", "fsck"}} { // migrate opens a single connection, fsck opens a pool
				ctl := e2e.NewCtl(t, "")
				ctl.Env = append(ctl.Env, "DATABASE_URL="+tt.url)
				if tt.says == "" {
					ctl.Run(0, command...)
				} else if _, said := ctl.Run(2, command...); !strings.Contains(said, tt.says) {
					t.Errorf("fairpactctl %v: %s, want %q", command, said, tt.says)
				}
			}
		})
	}
}

func requireTLS(t *testing.T, pg *localservers.Postgres) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), pg.AdminURL())
	e2e.Must(t, err)
	defer conn.Close(t.Context())
	e2e.Must(t, os.WriteFile(filepath.Join(pg.DataDir(), "pg_hba.conf"), []byte("hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-full\n"), 0o600))
	for _, statement := range []string{"ALTER SYSTEM SET ssl_ca_file = 'ca.crt'", "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()"} {
		_, err := conn.Exec(t.Context(), statement)
		e2e.Must(t, err)
	}
	e2e.Eventually(t, "Postgres refuses connections without TLS", e2e.DefaultTimeout, func() bool {
		conn, err := pgx.Connect(t.Context(), pg.AdminURL())
		if err == nil {
			conn.Close(t.Context())
		}
		return err != nil
	})
}

// authority is a CA. Its directory contains only ca.crt.
type authority struct {
	t    *testing.T
	dir  string
	pem  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir()}
	a.cert, a.key, a.pem = a.sign(x509.Certificate{
		Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	write(t, a.dir, "ca.crt", a.pem)
	return a
}

// sign makes a key and its certificate, which it also returns in PEM. The first call makes the
// CA's own certificate, which is self-signed.
func (a *authority) sign(c x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	e2e.Must(a.t, err)
	now := time.Now()
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(now.UnixNano()), now.Add(-time.Hour), now.Add(24*time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = &c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, &c, parent, key.Public(), signer)
	e2e.Must(a.t, err)
	cert, err := x509.ParseCertificate(der)
	e2e.Must(a.t, err)
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (a *authority) issue(dir, name string, c x509.Certificate) {
	a.t.Helper()
	_, key, cert := a.sign(c)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	e2e.Must(a.t, err)
	write(a.t, dir, name+".crt", cert)
	write(a.t, dir, name+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// write writes a file with the owner of dir.
func write(t *testing.T, dir, name string, content []byte) {
	t.Helper()
	info, err := os.Stat(dir)
	e2e.Must(t, err)
	owner, path := info.Sys().(*syscall.Stat_t), filepath.Join(dir, name)
	e2e.Must(t, os.WriteFile(path, content, 0o600))
	e2e.Must(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
}
