package httpapi

import (
	"log/slog"
	"net/http"
	"time"
)

const (
	readTimeout  = 30 * time.Second
	callTimeout  = 35 * time.Second // longer than a body may take, shorter than its answer
	writeTimeout = 60 * time.Second
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
