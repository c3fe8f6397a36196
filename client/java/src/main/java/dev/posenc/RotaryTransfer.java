package dev.posenc;

import com.google.protobuf.ByteString;
import com.google.protobuf.UnsafeByteOperations;
import dev.posenc.v1.AnswerInfo;
import dev.posenc.v1.ApplyRotaryRequest;
import dev.posenc.v1.ApplyRotaryResponse;
import dev.posenc.v1.Operand;
import dev.posenc.v1.RotaryChunk;
import dev.posenc.v1.RotaryOperand;
import dev.posenc.v1.StreamApplyRotaryRequest;
import dev.posenc.v1.StreamApplyRotaryResponse;
import dev.posenc.v1.Tensor;
import dev.posenc.v1.TensorChunk;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;

/** A rotation of q and k in chunks, over as many streams as it takes. */
final class RotaryTransfer {
  private static final int IN_FLIGHT = 4; // chunks sent and not yet answered
  private static final Duration WAIT = Duration.ofMillis(100); // without a push-back

  /** Names a chunk: its operand and its first byte there. */
  private record Place(Operand operand, long offset) {}

  private final ApplyRotaryRequest header;
  private final Map<Place, ByteString> pending = new LinkedHashMap<>(); // chunks without an answer
  private final byte[] q;
  private final byte[] k;
  private AnswerInfo info = AnswerInfo.getDefaultInstance();

  RotaryTransfer(ApplyRotaryRequest request, int chunkBytes) {
    q = cut(Operand.OPERAND_QUERY, request.getQ().getTensor(), chunkBytes);
    k = cut(Operand.OPERAND_KEY, request.getK().getTensor(), chunkBytes);
    ApplyRotaryRequest.Builder builder = request.toBuilder();
    if (request.hasQ()) builder.getQBuilder().getTensorBuilder().clearData();
    if (request.hasK()) builder.getKBuilder().getTensorBuilder().clearData();
    header = builder.build();
  }

  /** Cuts an operand into chunks and returns memory for their answers. */
  private byte[] cut(Operand operand, Tensor tensor, int chunkBytes) {
    long width = tensor.getShapeCount() == 0 ? 1 : tensor.getShape(tensor.getShapeCount() - 1);
    int row = (int) Math.max(width * Tensors.elementBytes(tensor.getDtype()), 1);
    int size = Math.max(chunkBytes / row, 1) * row;
    ByteString data = tensor.getData();
    for (int begin = 0; begin < data.size(); begin += size) {
      pending.put(new Place(operand, begin), data.substring(begin, Math.min(begin + size, data.size())));
    }
    return new byte[data.size()];
  }

  ApplyRotaryResponse run(Posenc posenc, Duration timeout) {
    long end = System.nanoTime() + timeout.toNanos();
    for (;;) {
      int before = pending.size();
      try {
        Stream stream = new Stream(posenc, end - System.nanoTime());
        stream.ended.join();
        return answer();
      } catch (CompletionException failed) {
        PosencError error = PosencError.of(failed.getCause());
        Duration wait = error.pushback().orElse(WAIT);
        boolean resumable = error.code() == Status.Code.UNAVAILABLE || error.code() == Status.Code.UNKNOWN  // a proxy ended it
            || timeLimitOfServer(error);
        if (!resumable || wait.isNegative() || pending.size() == before || wait.toNanos() >= end - System.nanoTime()) {
          throw failed.getCause() instanceof StatusRuntimeException refused
              ? refused
              : Status.fromThrowable(failed.getCause()).asRuntimeException();
        }
        sleep(wait);
      }
    }
  }

  /** The server's own time limit for a stream names the byte at which to continue. */
  private static boolean timeLimitOfServer(PosencError error) {
    return error.code() == Status.Code.DEADLINE_EXCEEDED && !error.operand().isEmpty();
  }

  private static void sleep(Duration wait) {
    try {
      Thread.sleep(wait.toMillis());
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
      throw Status.CANCELLED.withCause(interrupted).asRuntimeException();
    }
  }

  private ApplyRotaryResponse answer() {
    ApplyRotaryResponse.Builder answer = ApplyRotaryResponse.newBuilder().setInfo(info);
    if (header.hasQ()) answer.setQ(filled(header.getQ(), q));
    if (header.hasK()) answer.setK(filled(header.getK(), k));
    return answer.build();
  }

  private static Tensor filled(RotaryOperand operand, byte[] data) {
    return operand.getTensor().toBuilder().setData(UnsafeByteOperations.unsafeWrap(data)).build();
  }

  /** One stream: sends the pending chunks and removes those that it answers. */
  private final class Stream implements StreamObserver<StreamApplyRotaryResponse> {
    final CompletableFuture<Void> ended = new CompletableFuture<>();
    private final Queue<Map.Entry<Place, ByteString>> unsent = new ArrayDeque<>();
    private final StreamObserver<StreamApplyRotaryRequest> requests;

    Stream(Posenc posenc, long nanoseconds) {
      pending.forEach((place, rows) -> unsent.add(Map.entry(place, rows)));
      synchronized (this) { // answers come on other threads
        requests = posenc.async().withDeadlineAfter(nanoseconds, TimeUnit.NANOSECONDS).streamApplyRotary(this);
        requests.onNext(StreamApplyRotaryRequest.newBuilder().setHeader(header).build());
        for (int n = 0; n < IN_FLIGHT && !unsent.isEmpty(); ++n) send();
        if (pending.isEmpty()) requests.onCompleted();
      }
    }

    private void send() {
      Map.Entry<Place, ByteString> next = unsent.remove();
      TensorChunk rows =
          TensorChunk.newBuilder().setByteOffset(next.getKey().offset()).setData(next.getValue()).build();
      RotaryChunk chunk = RotaryChunk.newBuilder().setOperand(next.getKey().operand()).setRows(rows).build();
      requests.onNext(StreamApplyRotaryRequest.newBuilder().setChunk(chunk).build());
    }

    @Override
    public synchronized void onNext(StreamApplyRotaryResponse answer) {
      if (answer.hasInfo()) info = answer.getInfo();
      if (!answer.hasChunk()) return;
      TensorChunk rows = answer.getChunk().getRows();
      Place place = new Place(answer.getChunk().getOperand(), rows.getByteOffset());
      ByteString sent = pending.get(place);
      if (sent == null || sent.size() != rows.getData().size()) {
        throw Status.INTERNAL.withDescription("the server answered a chunk that was not sent").asRuntimeException();
      }
      rows.getData().copyTo(place.operand() == Operand.OPERAND_QUERY ? q : k, (int) place.offset());
      pending.remove(place);
      if (!unsent.isEmpty()) {
        send();
      } else if (pending.isEmpty()) {
        requests.onCompleted();
      }
    }

    @Override
    public void onError(Throwable error) {
      ended.completeExceptionally(error);
    }

    @Override
    public void onCompleted() {
      if (pending.isEmpty()) {
        ended.complete(null);
      } else {
        onError(Status.INTERNAL.withDescription("the server ended the stream early").asRuntimeException());
      }
    }
  }
}
