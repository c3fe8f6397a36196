package dev.posenc;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import dev.posenc.Posenc.Options;
import dev.posenc.Posenc.Tls;
import dev.posenc.v1.ApplyRotaryRequest;
import dev.posenc.v1.ApplyRotaryResponse;
import dev.posenc.v1.CallHints;
import dev.posenc.v1.DataType;
import dev.posenc.v1.GenerateTableRequest;
import dev.posenc.v1.GenerateTableResponse;
import dev.posenc.v1.GetServerInfoRequest;
import dev.posenc.v1.GetServerInfoResponse;
import dev.posenc.v1.Layout;
import dev.posenc.v1.ModelConfig;
import dev.posenc.v1.Pairing;
import dev.posenc.v1.PositionalEncodingServiceGrpc.PositionalEncodingServiceBlockingStub;
import dev.posenc.v1.Positions;
import dev.posenc.v1.RopeParameters;
import dev.posenc.v1.RotaryOperand;
import dev.posenc.v1.RotarySettings;
import dev.posenc.v1.RotarySource;
import dev.posenc.v1.ServiceProto;
import dev.posenc.v1.StreamApplyRotaryRequest;
import dev.posenc.v1.StreamApplyRotaryResponse;
import dev.posenc.v1.StreamTableRequest;
import dev.posenc.v1.TableForm;
import dev.posenc.v1.Tensor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;

/** These tests need the servers and the data that tests/integration/clients/conftest.py describes. */
final class ServerTest {
  private static final Options NO_RETRIES = new Options(null, false);
  private final List<Posenc> connections = new ArrayList<>();

  @AfterEach
  void close() {
    connections.forEach(Posenc::close);
  }

  private static String setting(String name) {
    String value = System.getenv("POSENC_TEST_" + name);
    assertTrue(value != null, "POSENC_TEST_" + name + " must be set");
    return value;
  }

  private Posenc connect(String name, Options options) {
    connections.add(Posenc.connect(setting(name), options));
    return connections.get(connections.size() - 1);
  }

  private PositionalEncodingServiceBlockingStub stub(String name) {
    return connect(name, new Options()).blocking();
  }

  private static Path path(String name) {
    return Path.of(setting("DATA"), name);
  }

  private static ByteString data(String name) {
    try {
      return ByteString.copyFrom(Files.readAllBytes(path(name)));
    } catch (IOException error) {
      throw new AssertionError(error);
    }
  }

  private static float[] values(int count) {
    float[] x = new float[count];
    for (int i = 0; i < count; ++i) x[i] = ((37 * i + 11) % 257 - 128) / 64f;
    return x;
  }

  private static RotaryOperand operand(DataType dtype, int tokens, int heads) {
    float[] x = values(tokens * heads * 128);
    boolean wide = dtype == DataType.DATA_TYPE_FP32;
    Tensor tensor = wide ? Tensors.of(x, 1, tokens, heads, 128) : Tensors.narrow(dtype, x, 1, tokens, heads, 128);
    return RotaryOperand.newBuilder().setTensor(tensor).build();
  }

  private static RotarySource settings() {
    return RotarySource.newBuilder()
        .setSettings(RotarySettings.newBuilder()
            .setRopeParameters(RopeParameters.newBuilder().setRopeType("default"))
            .setRotaryDim(128)
            .setInputPairing(Pairing.PAIRING_HALF_SPLIT))
        .build();
  }

  private static RotarySource model(ByteString config) {
    return RotarySource.newBuilder().setModel(ModelConfig.newBuilder().setConfigJson(config)).build();
  }

  private static ApplyRotaryRequest.Builder rotation(DataType dtype, int tokens) {
    return ApplyRotaryRequest.newBuilder()
        .setRotary(settings())
        .setPositions(Positions.newBuilder().setOffset(100_000))
        .setLayout(Layout.LAYOUT_BSHD)
        .setQ(operand(dtype, tokens, 32));
  }

  private static PosencError refusal(org.junit.jupiter.api.function.Executable call) {
    return PosencError.of(assertThrows(StatusRuntimeException.class, call));
  }

  @Test
  void rotationByAConfigGivesTheBytesOfEveryOtherClient() {
    for (DataType dtype : List.of(DataType.DATA_TYPE_FP32, DataType.DATA_TYPE_BF16)) {
      var answer = stub("ADDRESS").applyRotary(rotation(dtype, 3).setRotary(model(data("config.json"))).build());
      String name = dtype == DataType.DATA_TYPE_FP32 ? "rotated.fp32" : "rotated.bf16";
      assertTrue(answer.getQ().getData().equals(data(name)), name + ": other bytes");
    }
  }

  /**
   * Pair k of a half-split row is rotated by position * 10000^(-k/64). The sum of two float32 products has an error
   * below 3 units of 2^-24 of |x0| + |x1| <= 4; bfloat16 adds half of its own unit.
   */
  @Test
  void rotationIsNearTheFormula() {
    for (DataType dtype : List.of(DataType.DATA_TYPE_FP32, DataType.DATA_TYPE_BF16)) {
      double bound = dtype == DataType.DATA_TYPE_FP32 ? 0x1p-20 : 0x1p-7 + 0x1p-20;
      float[] rotated = Tensors.floats(stub("ADDRESS").applyRotary(rotation(dtype, 3).build()).getQ());
      float[] x = values(rotated.length);
      for (int i = 0; i < rotated.length; ++i) {
        int row = i - i % 128;
        int k = i % 64;
        double angle = (100_000 + i / 4096) * Math.pow(10000, -k / 64.0);
        double x0 = x[row + k];
        double x1 = x[row + k + 64];
        double cos = Math.cos(angle);
        double sin = Math.sin(angle);
        double want = i % 128 < 64 ? x0 * cos - x1 * sin : x1 * cos + x0 * sin;
        assertEquals(want, rotated[i], bound, "element " + i);
      }
    }
  }

  @Test
  void rounding() {
    ByteBuffer records = data("rounding").asReadOnlyByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
    while (records.hasRemaining()) {
      float value = records.getFloat();
      for (DataType dtype : List.of(DataType.DATA_TYPE_FP16, DataType.DATA_TYPE_BF16)) {
        byte[] want = new byte[2];
        records.get(want);
        Tensor narrow = Tensors.narrow(dtype, new float[] {value}, 1);
        assertArrayEquals(want, narrow.getData().toByteArray(), dtype + " of " + value);
        float[] wide = Tensors.floats(narrow);
        Tensor again = Tensors.narrow(dtype, wide, 1);
        assertArrayEquals(want, again.getData().toByteArray(), dtype + " is read as " + wide[0]);
      }
    }
  }

  @Test
  void tensorsOfEveryType() {
    assertArrayEquals(new float[] {1.5f, -2}, Tensors.floats(Tensors.of(new float[] {1.5f, -2}, 2)));
    assertArrayEquals(new double[] {1.1}, Tensors.doubles(Tensors.of(new double[] {1.1}, 1)));
    assertArrayEquals(new int[] {-1, 2}, Tensors.ints(Tensors.of(new int[] {-1, 2}, 2)));
    assertArrayEquals(new long[] {-1L << 40}, Tensors.longs(Tensors.of(new long[] {-1L << 40}, 1)));
    assertArrayEquals(new boolean[] {true, false}, Tensors.booleans(Tensors.of(new boolean[] {true, false}, 2)));
    var type = assertThrows(IllegalArgumentException.class, () -> Tensors.doubles(Tensors.of(new float[1], 1)));
    assertEquals("dtype is DATA_TYPE_FP32, must be DATA_TYPE_FP64", type.getMessage());
    var size = assertThrows(IllegalArgumentException.class, () -> Tensors.floats(Tensors.of(new float[1], 2)));
    assertEquals("data is 4 bytes, must be 8", size.getMessage());
  }

  /** Makes the calls in POSENC_TEST_DATA/calls and compares all fields of the answers, except for counters. */
  @Test
  void everyCall() throws Exception {
    var stub = stub("ADDRESS");
    Set<String> called = new HashSet<>();
    List<Path> calls;
    try (Stream<Path> entries = Files.list(path("calls"))) {
      calls = entries.toList();
    }
    for (Path entry : calls) {
      String method = entry.getFileName().toString().split("-", 2)[1];
      called.add(method);
      String name = Character.toLowerCase(method.charAt(0)) + method.substring(1);
      var types = ServiceProto.getDescriptor().findServiceByName("PositionalEncodingService").findMethodByName(method);
      Class<?> input = Class.forName("dev.posenc.v1." + types.getInputType().getName());
      Message request = parse(input, entry.resolve("request"));
      Object result = PositionalEncodingServiceBlockingStub.class.getMethod(name, input).invoke(stub, request);
      Iterator<?> answers = result instanceof Iterator<?> tiles ? tiles : List.of(result).iterator();
      int i = 0;
      for (; answers.hasNext(); ++i) {
        Message got = (Message) answers.next();
        Message want = parse(got.getClass(), entry.resolve("answer-" + i));
        if (got instanceof GetServerInfoResponse info) {
          got = info.getLimits();
          want = ((GetServerInfoResponse) want).getLimits();
        }
        assertEquals(want, got, entry.toString());
      }
      assertTrue(i > 0 && !Files.exists(entry.resolve("answer-" + i)), entry + ": " + i + " answers");
    }
    assertEquals(15, called.size(), "all methods but StreamApplyRotary");
  }

  private static Message parse(Class<?> type, Path file) throws Exception {
    return (Message) type.getMethod("parseFrom", byte[].class).invoke(null, (Object) Files.readAllBytes(file));
  }

  @Test
  void aRefusalHasDetails() {
    String config = data("config.json").toStringUtf8().replace("500000.0", "-1");
    var request = rotation(DataType.DATA_TYPE_FP32, 1).setRotary(model(ByteString.copyFromUtf8(config))).build();
    PosencError refused = refusal(() -> stub("ADDRESS").applyRotary(request));
    assertEquals(Status.Code.INVALID_ARGUMENT, refused.code());
    assertEquals("OUT_OF_RANGE", refused.reason());
    assertEquals("rotary.model.config_json.rope_theta", refused.field());
    assertEquals("-1", refused.value());
    assertTrue(refused.limit().startsWith("must be"), refused.limit());
    assertFalse(refused.started());
    assertTrue(refused.pushback().isEmpty());
  }

  @Test
  void aBusyServerSaysWhenToTryAgain() {
    Posenc busy = connect("BUSY", NO_RETRIES);
    ApplyRotaryRequest.Builder header = rotation(DataType.DATA_TYPE_FP32, 1);
    header.getQBuilder().getTensorBuilder().clearData();
    CompletableFuture<StreamApplyRotaryResponse> answered = new CompletableFuture<>();
    StreamObserver<StreamApplyRotaryRequest> stream = busy.async().streamApplyRotary(new StreamObserver<>() {
      @Override public void onNext(StreamApplyRotaryResponse answer) { answered.complete(answer); }
      @Override public void onError(Throwable error) { answered.completeExceptionally(error); }
      @Override public void onCompleted() {}
    });
    stream.onNext(StreamApplyRotaryRequest.newBuilder().setHeader(header).build());
    answered.join(); // from now on the server has its one call
    PosencError refused = refusal(() -> busy.blocking().applyRotary(rotation(DataType.DATA_TYPE_FP32, 1).build()));
    assertEquals(Status.Code.UNAVAILABLE, refused.code());
    assertEquals("OVERLOADED", refused.reason());
    assertFalse(refused.started());
    assertEquals(Duration.ofMillis(100), refused.pushback().get());
    stream.onError(Status.CANCELLED.asException());
  }

  private static ApplyRotaryRequest wishing(String wish, ApplyRotaryRequest.Builder request) {
    String id = wish + " java " + System.nanoTime();
    return request.setHints(CallHints.newBuilder().setRequestId(id)).build();
  }

  @Test
  void refusedCallsAreRetried() {
    var stub = stub("REFUSING");
    stub.applyRotary(wishing("refuse 4 pushback 1", rotation(DataType.DATA_TYPE_FP32, 512))); // 8 MiB
    var forbidden = wishing("refuse 1 pushback -1", rotation(DataType.DATA_TYPE_FP32, 1));
    assertTrue(refusal(() -> stub.applyRotary(forbidden)).pushback().get().isNegative());
    var once = wishing("refuse 1 pushback 1", rotation(DataType.DATA_TYPE_FP32, 1));
    PosencError refused = refusal(() -> connect("REFUSING", NO_RETRIES).blocking().applyRotary(once));
    assertEquals(Duration.ofMillis(1), refused.pushback().get());
  }

  private static GenerateTableRequest table(int rows, DataType dtype, TableForm form) {
    return GenerateTableRequest.newBuilder()
        .setRotary(settings())
        .setPositions(Positions.newBuilder().setOffset(0))
        .setCount(rows)
        .setDtype(dtype)
        .setForm(form)
        .build();
  }

  /** The last bit of a float64 angle is below 2^-35 at position 131,071. */
  @Test
  void anAnswerOf64MiB() {
    int rows = 131_072;
    GenerateTableResponse answer =
        stub("ADDRESS").generateTable(table(rows, DataType.DATA_TYPE_FP32, TableForm.TABLE_FORM_HALF_WIDTH));
    float[] cos = Tensors.floats(answer.getCos());
    float[] sin = Tensors.floats(answer.getSin());
    assertEquals(64 << 20, 4 * (cos.length + sin.length));
    for (int row = 0; row < rows; row += 4099) {
      for (int k = 0; k < 64; ++k) {
        double angle = row * Math.pow(10000, -k / 64.0);
        assertEquals(Math.cos(angle), cos[64 * row + k], 0x1p-25 + 1e-9);
        assertEquals(Math.sin(angle), sin[64 * row + k], 0x1p-25 + 1e-9);
      }
    }
  }

  @Test
  void chunksGiveTheBytesOfOneCall() {
    for (DataType dtype : List.of(DataType.DATA_TYPE_FP32, DataType.DATA_TYPE_BF16)) {
      ApplyRotaryRequest request = rotation(dtype, 40).setK(operand(dtype, 40, 8)).build();
      ApplyRotaryResponse whole = stub("ADDRESS").applyRotary(request);
      for (String peer : List.of("ADDRESS", "REFUSING")) { // the second one ends the first stream early
        var wish = wishing("refuse 1 pushback 1", request.toBuilder());
        var inChunks = connect(peer, new Options()).rotateInChunks(wish, 100_000, Duration.ofMinutes(1));
        assertTrue(whole.getQ().equals(inChunks.getQ()), peer + ": other bytes of q");
        assertTrue(whole.getK().equals(inChunks.getK()), peer + ": other bytes of k");
        assertEquals(128, inChunks.getInfo().getRotaryDim());
      }
    }
  }

  @Test
  void aRefusedStreamThrowsTheServersError() {
    ApplyRotaryRequest request = rotation(DataType.DATA_TYPE_FP32, 1).clearLayout().build();
    PosencError refused =
        refusal(() -> connect("ADDRESS", new Options()).rotateInChunks(request, 1000, Duration.ofMinutes(1)));
    assertEquals("header.layout", refused.field());
  }

  /**
   * Connecting to RESTART stops the server at RESTARTING and starts another one there; the connection ends when it
   * serves.
   */
  @Test
  void restartsOfTheServerFailNoCall() throws IOException {
    AtomicBoolean done = new AtomicBoolean();
    List<CompletableFuture<Void>> callers = new ArrayList<>();
    for (int n = 0; n < 4; ++n) {
      var stub = stub("RESTARTING");
      callers.add(CompletableFuture.runAsync(() -> {
        for (int call = 0; !done.get(); ++call) {
          stub.applyRotary(rotation(DataType.DATA_TYPE_FP32, 1 + 63 * (call % 2)).build());
        }
      }, command -> new Thread(command).start()));
    }
    String[] address = setting("RESTART").split(":");
    for (int n = 0; n < 3; ++n) {
      try (Socket restart = new Socket(address[0], Integer.parseInt(address[1]))) {
        restart.getInputStream().readAllBytes();
      }
    }
    done.set(true);
    callers.forEach(CompletableFuture::join);
  }

  @Test
  void tilesGiveTheBytesOfOneCall() throws IOException {
    GenerateTableRequest request = table(100, DataType.DATA_TYPE_BF16, TableForm.TABLE_FORM_DUPLICATED);
    ByteArrayOutputStream cos = new ByteArrayOutputStream();
    var inTiles = StreamTableRequest.newBuilder().setTable(request).setRowsPerTile(7).build();
    var tiles = stub("ADDRESS").streamTable(inTiles);
    while (tiles.hasNext()) {
      var tile = tiles.next();
      assertEquals(cos.size() / 256, tile.getRowBegin());
      tile.getCos().getData().writeTo(cos);
    }
    assertArrayEquals(stub("ADDRESS").generateTable(request).getCos().getData().toByteArray(), cos.toByteArray());
  }

  @Test
  void tlsWithAClientsCertificate() {
    File ca = path("ca.pem").toFile();
    File certificate = path("client.pem").toFile();
    File key = path("client.key").toFile();
    GetServerInfoRequest request = GetServerInfoRequest.getDefaultInstance();
    var mine = new Tls(ca, certificate, key, "server.example");
    assertTrue(connect("TLS", new Options(mine, true)).blocking().getServerInfo(request).hasTlsCertificate());
    for (Tls wrong : List.of(new Tls(ca, null, null, null), new Tls(ca, certificate, key, "other.example"))) {
      PosencError refused = refusal(() -> connect("TLS", new Options(wrong, false)).blocking().getServerInfo(request));
      assertEquals(Status.Code.UNAVAILABLE, refused.code());
      assertEquals("", refused.reason());
    }
  }
}
