package org.apache.spark.kafka010;

import java.util.Map;
import org.apache.spark.SparkConf;
import scala.Option;

/** No tokens, ever; see KafkaConfigUpdater. The name is what Scala makes of an object. */
public final class KafkaTokenUtil$ {
    public static final KafkaTokenUtil$ MODULE$ = new KafkaTokenUtil$();

    private KafkaTokenUtil$() {
    }

    public Option<Object> findMatchingTokenClusterConfig(SparkConf settings, String servers) {
        return Option.empty();
    }

    public boolean needTokenUpdate(Map<String, Object> settings, Option<?> clusterConfig) {
        return false;
    }
}
