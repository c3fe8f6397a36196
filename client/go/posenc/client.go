// Package posenc calls a posenc-server, which computes positional encodings for attention.
//
// The messages and the service are in posenc.dev/posenc/v1. This package adds a connection with the right settings
// (Connect), tensors (Tensor, Narrow, Values), errors (Error) and rotations of any size (Client.RotateInChunks).
package posenc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	posencv1 "posenc.dev/posenc/v1"
)

//go:embed service_config.json
var serviceConfig string

// TLS names PEM files and the server. The zero value trusts the system's CAs and has no client certificate.
type TLS struct {
	CA          string // file of the CAs of the server's certificate; empty: the system's CAs
	Certificate string // file of the client's certificate and its intermediate CAs; empty: none
	Key         string // file of the certificate's key
	ServerName  string // name that the server's certificate must have; empty: that of the address
}

// Options of a connection. The zero value is a connection without encryption, for a server on this machine only.
type Options struct {
	TLS *TLS
	// NoRetries turns off the retries of UNAVAILABLE calls. Calls with outputs in shared memory need it: after a
	// lost connection the first attempt may still write there, also over a later call's.
	NoRetries bool
	// Dial holds further options of gRPC; they override those of Connect.
	Dial []grpc.DialOption
}

// Client calls one server. Its methods are those of the service, with errors of type *Error. Safe for concurrent use.
type Client struct {
	posencv1.PositionalEncodingServiceClient
	connection *grpc.ClientConn
}

// Connect returns a client of the server at a gRPC target: "localhost:50051", "unix:/run/posenc.sock",
// "dns:///posenc.example:443". It does not wait for the connection. Messages have no limit but gRPC's 2 GiB. A call
// that the server refuses as UNAVAILABLE is tried up to five times, after the time that the server asks for.
func Connect(target string, options Options) (*Client, error) {
	transport := insecure.NewCredentials()
	if options.TLS != nil {
		config, err := options.TLS.config()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(config)
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32),
			grpc.MaxRetryRPCBufferSize(math.MaxInt32)), // a call above this limit is not retried
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithChainUnaryInterceptor(unaryErrors),
		grpc.WithChainStreamInterceptor(streamErrors),
	}
	if options.NoRetries {
		dial = append(dial, grpc.WithDisableRetry())
	} else {
		dial = append(dial, grpc.WithDefaultServiceConfig(serviceConfig))
	}
	connection, err := grpc.NewClient(target, append(dial, options.Dial...)...)
	if err != nil {
		return nil, err
	}
	return &Client{posencv1.NewPositionalEncodingServiceClient(connection), connection}, nil
}

// Close ends the connection and the calls on it.
func (c *Client) Close() error { return c.connection.Close() }

func (t *TLS) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: t.ServerName}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s: must be a PEM file of certificates", t.CA)
		}
	}
	if t.Certificate != "" || t.Key != "" {
		pair, err := tls.LoadX509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Error is the error of a call: errors.As(err, &e) finds it. Fields are empty where the server gave no such detail;
// posenc/v1/error.proto says what they mean.
type Error struct {
	Code                codes.Code
	Message             string
	Reason              string // OUT_OF_RANGE, MISSING, OVERLOADED, ...; empty: not from the service itself
	Field, Value, Limit string
	OtherField          string
	Line, Column        int // place in a config.json that cannot be parsed, from 1; 0: none
	Started             bool
	Pushback            time.Duration // time after which to try again; negative: do not retry; 0: none given
	Operand             string        // StreamApplyRotary: the operand that ByteOffset belongs to
	ByteOffset          int64         // StreamApplyRotary: first byte that was not answered
	status              *status.Status
}

func (e *Error) Error() string { return fmt.Sprintf("%v: %s", e.Code, e.Message) }

// GRPCStatus lets status.FromError and status.Code read the error.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Unwrap lets errors.Is find context.Canceled and context.DeadlineExceeded.
func (e *Error) Unwrap() error {
	switch e.Code {
	case codes.Canceled:
		return context.Canceled
	case codes.DeadlineExceeded:
		return context.DeadlineExceeded
	}
	return nil
}

func newError(err error, trailer metadata.MD) error {
	if err == nil || err == io.EOF {
		return err
	}
	if _, known := err.(*Error); known {
		return err
	}
	s := status.Convert(err)
	e := &Error{Code: s.Code(), Message: s.Message(), status: s, Pushback: pushback(trailer)}
	for _, detail := range s.Proto().GetDetails() {
		info := &posencv1.ErrorInfo{}
		if detail.TypeUrl != "type.googleapis.com/google.rpc.ErrorInfo" || proto.Unmarshal(detail.Value, info) != nil ||
			info.Domain != "posenc" {
			continue
		}
		number := func(key string) int64 {
			value, _ := strconv.ParseInt(info.Metadata[key], 10, 64)
			return value
		}
		e.Reason, e.Field = info.Reason, info.Metadata["field"]
		e.Value, e.Limit = info.Metadata["value"], info.Metadata["limit"]
		e.OtherField, e.Line, e.Column = info.Metadata["other_field"], int(number("line")), int(number("column"))
		e.Started = info.Metadata["started"] == "true"
		e.Operand, e.ByteOffset = info.Metadata["operand"], number("byte_offset")
	}
	return e
}

// pushback reads the server's wait before a retry. A value that is no number forbids retries, as in gRPC's own clients.
func pushback(trailer metadata.MD) time.Duration {
	values := trailer.Get("grpc-retry-pushback-ms")
	if len(values) == 0 {
		return 0
	}
	milliseconds, err := strconv.ParseInt(values[0], 10, 32)
	if err != nil || milliseconds < 0 {
		return -1
	}
	return time.Duration(milliseconds) * time.Millisecond
}

func unaryErrors(ctx context.Context, method string, request, reply any, connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
	var trailer metadata.MD
	return newError(invoke(ctx, method, request, reply, connection, append(options, grpc.Trailer(&trailer))...), trailer)
}

func streamErrors(ctx context.Context, description *grpc.StreamDesc, connection *grpc.ClientConn, method string,
	open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := open(ctx, description, connection, method, options...)
	if err != nil {
		return nil, newError(err, nil)
	}
	return &typedStream{stream}, nil
}

// typedStream gives the errors of a stream the type *Error.
type typedStream struct{ grpc.ClientStream }

func (s *typedStream) RecvMsg(message any) error {
	err := s.ClientStream.RecvMsg(message)
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return newError(err, s.Trailer())
}
