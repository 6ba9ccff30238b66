"""A Spark driver that uses an account for reads, streams and writes, and shows all that Spark can show of them.

    python -m tests.spark.secret_job NAME_SERVER TOPIC FOLDER SECRET

FOLDER gets the event log, a checkpoint and a sink; standard output gets plans, representations and errors.
"""

import sys
from pathlib import Path
from typing import Any

from tests.support.quick_start import quick_session


def main(name_server: str, topic: str, folder: str, secret: str) -> int:
    home = Path(folder)
    (home / "events").mkdir()
    events = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": str(home / "events")}
    spark = quick_session(home / "spark", {"spark.log.level": "INFO", **events})
    account = {
        "nameServer": name_server,
        "accessKey": "someone",
        "secretKey": secret,
        "securityToken": f"{secret}-token",
    }
    reader = spark.read.format("rocketmq").options(**account)
    frame = reader.option("subscribe", topic).option("columns", "queue_id,queue_offset,body").load()
    frame.explain(True)
    print(frame, frame.schema, frame._jdf.queryExecution().toString())
    print("rows", frame.count())
    frame.createOrReplaceTempView("orders")
    spark.sql("SELECT count(*) FROM orders").explain("formatted")
    _stream(spark, account, topic, home)
    rows = frame.selectExpr("body").limit(3)
    rows.explain(True)
    rows.write.format("rocketmq").options(**account, topic=topic).mode("append").save()
    nulls = rows.selectExpr("IF(true, NULL, body) AS body")
    _failing(
        "row",
        lambda: (
            nulls.write.format("rocketmq").options(**account, topic=topic).mode("append").save()
        ),
    )
    _failing("half", lambda: reader.options(subscribe=topic, credentialsFile="/nowhere").load())
    _failing("column", lambda: reader.options(subscribe=topic, columns="nothing").load())
    _failing("task", lambda: frame.selectExpr("raise_error('task fails')").collect())
    spark.stop()
    return 0


def _stream(spark: Any, account: dict[str, str], topic: str, home: Path) -> None:
    stream = spark.readStream.format("rocketmq").options(**account, subscribe=topic)
    stream = stream.option("startingOffsets", "earliest").load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", str(home / "sink"))
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    query.explain(True)
    print(query.lastProgress)


def _failing(name: str, work: Any) -> None:
    try:
        work()
    except Exception as error:
        print(name, "failed", repr(error), error)
    else:
        print(name, "did not fail")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
