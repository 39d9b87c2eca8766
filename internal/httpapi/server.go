package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	readTimeout  = 30 * time.Second
	writeTimeout = 60 * time.Second // longer than limits.CallTime
)

// Server bounds what a slow or greedy client can hold.
func Server(h http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}
