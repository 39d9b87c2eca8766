package ctl

import (
	"fmt"

	"github.com/fairpact/fairpact/internal/rules/verification"
)

// report prints the checks of r, and then the lines of the parameter `more`. With --json it
// prints only the parameter `value`. It returns errFailed if a check failed.
func (t *terminal) report(r verification.Report, value any, more ...string) error {
	if t.json {
		if err := t.value(value); err != nil {
			return err
		}
	} else {
		for _, check := range r.Checks {
			word := "OK"
			if !check.OK {
				word = "FAIL"
			}
			t.line("%-4s %-22s %s", word, check.Name, check.Detail)
		}
		for _, line := range more {
			t.line("%s", line)
		}
	}
	if !r.Valid {
		return errFailed
	}
	return nil
}

func verdict(r verification.Report) string {
	if r.Valid {
		return "valid"
	}
	return "NOT VALID"
}

func checked(name string, err error, format string, args ...any) verification.Check {
	if err != nil {
		return verification.Check{Name: name, Detail: err.Error()}
	}
	return verification.Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

func notProven(report verification.Report) (lines []string) {
	for _, note := range report.Notes {
		lines = append(lines, "not proven: "+note)
	}
	return append(lines, verdict(report))
}
