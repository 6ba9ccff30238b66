package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The settings of a Kafka client, put together. One of three stand-ins for the module of Spark that hands out delegation
 * tokens: its Kafka source needs their names, a broker without security nothing of what they do, and not every mirror of
 * Maven Central has that module. None of them runs for each row.
 */
public final class KafkaConfigUpdater {
    private final Map<String, Object> settings;

    public KafkaConfigUpdater(String module, scala.collection.immutable.Map<String, Object> given) {
        settings = new HashMap<>(CollectionConverters.asJava(given));
    }

    public KafkaConfigUpdater set(String key, Object value) {
        settings.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        settings.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> clusterConfig) {
        return this;
    }

    public Map<String, Object> build() {
        return settings;
    }
}
