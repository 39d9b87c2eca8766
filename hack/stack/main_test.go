package main

import (
	"slices"
	"testing"
)

func TestBinariesGetTheSettingsOfTheirKeyProviders(t *testing.T) {
	passed := []string{
		"FAIRPACT_KEY_SET_FILE=/keys.json", "FAIRPACT_BEACON_PERIOD=3", "OTEL_SERVICE_NAME=x",
		"AWS_REGION=eu-central-1", "AWS_PROFILE=a=b", "GOOGLE_APPLICATION_CREDENTIALS=/x.json", "SOFTHSM2_CONF=/x.conf",
		"HTTPS_PROXY=http://proxy:3128", "https_proxy=http://proxy:3128", "NO_PROXY=.internal",
	}
	withheld := []string{"FAIRPACT_LISTEN=:1", "DATABASE_URL=x", "AWSOME=x", "SHELL=/bin/sh"}
	if got := passedOn(slices.Concat(withheld, passed)); !slices.Equal(got, passed) {
		t.Errorf("the binaries get %q, want %q", got, passed)
	}
}
