import com.google.protobuf.ByteString;
import dev.posenc.Posenc;
import dev.posenc.Tensors;
import dev.posenc.v1.ApplyRotaryRequest;
import dev.posenc.v1.Layout;
import dev.posenc.v1.ModelConfig;
import dev.posenc.v1.Positions;
import dev.posenc.v1.RotaryOperand;
import dev.posenc.v1.RotarySource;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.types.StructType;

/**
 * Rotates a column of a Parquet data set in Spark, on posenc servers: RotateRows ADDRESS CONFIG_JSON HEADS HEAD_DIM ROWS OUT
 *
 * <p>ROWS has the columns id, start (the first token's position) and q, an array of floats [tokens, HEADS, HEAD_DIM]. OUT
 * has id and q. The driver reads CONFIG_JSON and sends it along. A job waits up to ten minutes for servers that come back.
 */
public final class RotateRows {
  private static final Duration TOTAL = Duration.ofMinutes(10);
  private static final Map<String, Posenc> CONNECTIONS = new ConcurrentHashMap<>(); // of this executor

  static ApplyRotaryRequest request(ByteString config, float[] q, int heads, int headDim, long start) {
    int tokens = q.length / (heads * headDim);
    return ApplyRotaryRequest.newBuilder()
        .setRotary(RotarySource.newBuilder().setModel(ModelConfig.newBuilder().setConfigJson(config)))
        .setPositions(Positions.newBuilder().setOffset(start))
        .setLayout(Layout.LAYOUT_BSHD)
        .setQ(RotaryOperand.newBuilder().setTensor(Tensors.of(q, 1, tokens, heads, headDim)))
        .build();
  }

  static Row rotated(Row row, String address, ByteString config, int heads, int headDim) {
    float[] q = new float[row.getList(2).size()];
    for (int n = 0; n < q.length; n++) q[n] = row.<Float>getList(2).get(n);
    ApplyRotaryRequest request = request(config, q, heads, headDim, row.getLong(1));
    Posenc posenc = CONNECTIONS.computeIfAbsent(address, Posenc::connect);
    return RowFactory.create(row.getLong(0), Tensors.floats(posenc.until(TOTAL, stub -> stub.applyRotary(request)).getQ()));
  }

  public static void main(String[] arguments) throws Exception {
    if (arguments.length != 6) {
      System.err.println("usage: RotateRows ADDRESS CONFIG_JSON HEADS HEAD_DIM ROWS OUT");
      System.exit(2);
    }
    String address = arguments[0];
    ByteString config = ByteString.copyFrom(Files.readAllBytes(Path.of(arguments[1])));
    int heads = Integer.parseInt(arguments[2]);
    int headDim = Integer.parseInt(arguments[3]);
    SparkSession spark = SparkSession.builder().appName("posenc: rotated rows").getOrCreate();
    Dataset<Row> rows = spark.read().parquet(arguments[4]).select("id", "start", "q");
    MapPartitionsFunction<Row, Row> rotate =
        partition ->
            new Iterator<>() {
              public boolean hasNext() {
                return partition.hasNext();
              }

              public Row next() {
                return rotated(partition.next(), address, config, heads, headDim);
              }
            };
    rows.mapPartitions(rotate, Encoders.row(StructType.fromDDL("id bigint, q array<float>")))
        .write().mode("overwrite").parquet(arguments[5]);
    System.out.println("rotated " + spark.read().parquet(arguments[5]).count() + " rows");
    spark.stop();
  }
}
