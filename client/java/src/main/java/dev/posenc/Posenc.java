package dev.posenc;

import com.google.gson.Gson;
import dev.posenc.v1.ApplyRotaryRequest;
import dev.posenc.v1.ApplyRotaryResponse;
import dev.posenc.v1.PositionalEncodingServiceGrpc;
import dev.posenc.v1.PositionalEncodingServiceGrpc.PositionalEncodingServiceBlockingStub;
import dev.posenc.v1.PositionalEncodingServiceGrpc.PositionalEncodingServiceFutureStub;
import dev.posenc.v1.PositionalEncodingServiceGrpc.PositionalEncodingServiceStub;
import io.grpc.ChannelCredentials;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.TlsChannelCredentials;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;

/**
 * A connection to a posenc-server, which computes positional encodings for attention. Messages have no limit but gRPC's
 * 2 GiB. A call that the server refuses as UNAVAILABLE is tried up to five times, after the time that the server asks
 * for. {@link Tensors} converts tensors; {@link PosencError} reads the details of an error. Thread-safe.
 */
public final class Posenc implements AutoCloseable {
  /** PEM files. Null: the system's CAs; no certificate of the client; the address's name. */
  public record Tls(File ca, File certificate, File key, String serverName) {}

  /**
   * Options of a connection.
   *
   * @param tls null: not encrypted, for a server on this machine only
   * @param retries false turns off the retries of UNAVAILABLE calls. Calls with outputs in shared memory
   *     need it: after a lost connection the first attempt may still write there, also over a later call's.
   */
  public record Options(Tls tls, boolean retries) {
    public Options() {
      this(null, true);
    }
  }

  private final String target;
  private final ManagedChannel channel;

  private Posenc(String target, ManagedChannel channel) {
    this.target = target;
    this.channel = channel;
  }

  /** Connects to "localhost:50051" or another gRPC target, at the first call. */
  public static Posenc connect(String target) {
    return connect(target, new Options());
  }

  /**
   * Connects to a gRPC target, at the first call.
   *
   * @throws UncheckedIOException if a file of TLS cannot be read
   * @throws IllegalArgumentException if it holds no certificate or key
   */
  public static Posenc connect(String target, Options options) {
    ManagedChannelBuilder<?> builder =
        Grpc.newChannelBuilder(target, credentials(options.tls()))
            .maxInboundMessageSize(Integer.MAX_VALUE)
            .keepAliveTime(30, TimeUnit.SECONDS)
            .keepAliveTimeout(20, TimeUnit.SECONDS);
    if (options.retries()) {
      // A call above these limits is not retried.
      builder.retryBufferSize(Integer.MAX_VALUE).perRpcBufferLimit(Integer.MAX_VALUE);
      builder.defaultServiceConfig(serviceConfig());
    } else {
      builder.disableRetry();
    }
    if (options.tls() != null && options.tls().serverName() != null) {
      builder.overrideAuthority(options.tls().serverName());
    }
    return new Posenc(target, builder.build());
  }

  /** A stub whose calls block. */
  public PositionalEncodingServiceBlockingStub blocking() {
    return PositionalEncodingServiceGrpc.newBlockingStub(channel);
  }

  /** A stub whose calls return futures. */
  public PositionalEncodingServiceFutureStub future() {
    return PositionalEncodingServiceGrpc.newFutureStub(channel);
  }

  /** A stub whose calls give their answers to observers; the only one with all streams. */
  public PositionalEncodingServiceStub async() {
    return PositionalEncodingServiceGrpc.newStub(channel);
  }

  /**
   * Does what ApplyRotary does, for tensors of any size: it sends q and k in chunks of about {@code chunkBytes}, which
   * are whole head rows; some MiB are a good size. If a stream ends early, because the server drains or limits its
   * time, the chunks without an answer go into a new stream, as long as each stream answers at least one. Blocks.
   *
   * @param timeout limit for all streams together
   * @throws StatusRuntimeException if the server refuses the request, or ends a stream without progress
   */
  public ApplyRotaryResponse rotateInChunks(ApplyRotaryRequest request, int chunkBytes, Duration timeout) {
    return new RotaryTransfer(request, chunkBytes).run(this, timeout);
  }

  /**
   * Makes a call again until a server has answered it, for jobs that outlive a server's restart: {@code posenc.until(
   * Duration.ofMinutes(10), stub -> stub.applyRotary(request))}. Blocks.
   *
   * @param total how long to wait for a server that comes back. Each attempt has 60 seconds
   * @throws StatusRuntimeException if the server refuses the request, or none has answered until then
   */
  public <T> T until(Duration total, Function<PositionalEncodingServiceBlockingStub, T> call) {
    long end = System.nanoTime() + total.toNanos();
    while (true) {
      try {
        return call.apply(blocking().withDeadlineAfter(60, TimeUnit.SECONDS));
      } catch (StatusRuntimeException error) {
        Status.Code code = error.getStatus().getCode();
        // UNKNOWN: a proxy lost its server.
        if (code != Status.Code.UNAVAILABLE && code != Status.Code.UNKNOWN) throw error;
        if (System.nanoTime() - end > 0) {
          String waited =
              error.getStatus().getDescription() + "; waited " + total.toSeconds() + " s for " + target + " to come back";
          throw error.getStatus().withDescription(waited).asRuntimeException(error.getTrailers());
        }
        LockSupport.parkNanos(1_000_000_000L);
      }
    }
  }

  /** Ends the connection when its calls have ended. */
  @Override
  public void close() {
    channel.shutdown();
  }

  private static ChannelCredentials credentials(Tls tls) {
    if (tls == null) return InsecureChannelCredentials.create();
    try {
      TlsChannelCredentials.Builder builder = TlsChannelCredentials.newBuilder();
      if (tls.ca() != null) builder.trustManager(tls.ca());
      if (tls.certificate() != null || tls.key() != null) builder.keyManager(tls.certificate(), tls.key());
      return builder.build();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static Map<String, ?> serviceConfig() {
    try (Reader text =
        new InputStreamReader(Posenc.class.getResourceAsStream("service_config.json"), StandardCharsets.UTF_8)) {
      @SuppressWarnings("unchecked")
      Map<String, ?> map = new Gson().fromJson(text, Map.class);
      return map;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }
}
