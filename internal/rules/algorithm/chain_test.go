package algorithm

import "testing"

// The values of drand's own test (common/chain/info_test.go), which quicknet publishes at /info.
func TestChainHashIsThatOfDrand(t *testing.T) {
	t.Parallel()
	const key = "83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d1064510d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"
	if got := ChainHash(key, 3, 1692803367, QuicknetSeed, QuicknetID); got != Quicknet {
		t.Errorf("the hash of quicknet is %s, want %s", got, Quicknet)
	}
	if got := ChainHash(key, 3, 1692803367, QuicknetSeed, "default"); got != "bb53bd3c1f404463b224d27e22872c4754f7d4f5549693d349f616c3ac27d4a9" {
		t.Errorf("the hash with the beacon id default is %s; the id must not count", got)
	}
	for name, got := range map[string]string{
		"key": ChainHash(key[2:], 3, 1, QuicknetSeed, "x"), "seed": ChainHash(key, 3, 1, "00", "x"), "id": ChainHash(key, 3, 1, QuicknetSeed, ""),
		"period": ChainHash(key, 1<<32, 1, QuicknetSeed, "x"), "genesis": ChainHash(key, 3, -1, QuicknetSeed, "x"),
	} {
		if got != "" {
			t.Errorf("with a bad %s the hash is %s, want none", name, got)
		}
	}
}
