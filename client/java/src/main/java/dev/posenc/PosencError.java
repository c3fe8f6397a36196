package dev.posenc;

import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.ErrorInfo;
import io.grpc.Metadata;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * Details of a call's error. Strings are empty where the server gave no such detail; posenc/v1/error.proto says what
 * they mean.
 *
 * @param reason OUT_OF_RANGE, MISSING, OVERLOADED, ...; empty: the error is not from the service itself
 * @param line line of a config.json at which its parser stopped, from 1; 0: none
 * @param column column of that place, from 1; 0: none
 * @param started true if work on the request had begun
 * @param pushback time after which to try again; negative: do not retry
 * @param operand rotations in chunks: the operand of byteOffset
 * @param byteOffset rotations in chunks: the operand's first byte that was not answered
 */
public record PosencError(
    Status.Code code, String message, String reason, String field, String value, String limit, String otherField,
    int line, int column, boolean started, Optional<Duration> pushback, String operand, long byteOffset) {

  private static final Metadata.Key<String> PUSHBACK =
      Metadata.Key.of("grpc-retry-pushback-ms", Metadata.ASCII_STRING_MARSHALLER);

  /** Reads the details of an exception that a stub threw or gave to an observer. */
  public static PosencError of(Throwable error) {
    ErrorInfo info = infoOf(error);
    Map<String, String> metadata = info.getMetadataMap();
    Status status = Status.fromThrowable(error);
    return new PosencError(
        status.getCode(), Optional.ofNullable(status.getDescription()).orElse(""), info.getReason(),
        metadata.getOrDefault("field", ""), metadata.getOrDefault("value", ""), metadata.getOrDefault("limit", ""),
        metadata.getOrDefault("other_field", ""), Integer.parseInt(metadata.getOrDefault("line", "0")),
        Integer.parseInt(metadata.getOrDefault("column", "0")), "true".equals(metadata.get("started")),
        pushbackOf(error), metadata.getOrDefault("operand", ""),
        Long.parseLong(metadata.getOrDefault("byte_offset", "0")));
  }

  private static ErrorInfo infoOf(Throwable error) {
    com.google.rpc.Status status = StatusProto.fromThrowable(error);
    try {
      for (Any detail : status == null ? List.<Any>of() : status.getDetailsList()) {
        if (!detail.is(ErrorInfo.class)) continue;
        ErrorInfo info = detail.unpack(ErrorInfo.class);
        if (info.getDomain().equals("posenc")) return info;
      }
    } catch (InvalidProtocolBufferException malformed) {
      // Not from a posenc-server.
    }
    return ErrorInfo.getDefaultInstance();
  }

  /** A value that is no number forbids retries, as in gRPC's own clients. */
  private static Optional<Duration> pushbackOf(Throwable error) {
    Metadata trailers = Status.trailersFromThrowable(error);
    String text = trailers == null ? null : trailers.get(PUSHBACK);
    if (text == null) return Optional.empty();
    try {
      return Optional.of(Duration.ofMillis(Long.parseLong(text)));
    } catch (NumberFormatException malformed) {
      return Optional.of(Duration.ofMillis(-1));
    }
  }
}
