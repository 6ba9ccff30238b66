"""Look through a group's dead letters with SQL: what was set aside, why, and what could be sent again.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/order_service.py serve &
    python examples/order_service.py order 100          # every tenth has no amount, and is set aside
    python examples/spark_dead_letters.py billing

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Needs `pip install '.[spark]'` and Java 17 or later.

Dead letters of a group are a topic like any other. Looking changes nothing; `rocketrio dead-letters resend` sends
them to their group once more.
"""

# pyright: basic
# (The type of `SparkSession.sql` is known in part only.)

import os
import sys

# Spark starts its workers with the `python3` on PATH unless a setting says which interpreter has the packages.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

from pyspark.sql import SparkSession

from rocketrio.spark import from_rocketmq

TRIAGE = """
    CREATE OR REPLACE TEMPORARY VIEW triage AS
    SELECT properties['RETRY_TOPIC'] AS topic,     -- where it was before it was set aside
           properties['ORIGIN_MESSAGE_ID'] AS message_id,
           keys, reconsume_times AS attempts, born_time AS sent, store_time AS set_aside,
           CAST(body AS STRING) AS text,
           CASE WHEN try_parse_json(CAST(body AS STRING)) IS NULL THEN 'not JSON'
                WHEN get_json_object(CAST(body AS STRING), '$.cents') IS NULL THEN 'no amount'
                ELSE 'could not be billed' END AS reason
    FROM dead_letters
"""
BY_REASON = """
    SELECT topic, reason, count(*) AS letters, max(attempts) AS attempts,
           max(set_aside) - min(sent) AS span
    FROM triage GROUP BY topic, reason ORDER BY letters DESC, reason
"""
THE_FIRST_OF_EACH = """
    SELECT reason, keys, text FROM triage
    QUALIFY row_number() OVER (PARTITION BY reason ORDER BY set_aside, keys) <= 3
    ORDER BY reason, keys
"""


def main(group: str) -> None:
    spark = SparkSession.builder.master("local[2]").appName("dead letters").getOrCreate()
    letters = from_rocketmq(
        spark,
        f"%DLQ%{group}",
        columns=["keys", "body", "reconsume_times", "born_time", "store_time", "properties"],
    )
    letters.createOrReplaceTempView("dead_letters")
    spark.sql(TRIAGE)
    for row in spark.sql(BY_REASON).collect():
        print(f"{row.letters} of {row.topic}: {row.reason}, tried {row.attempts} times at most")
    for row in spark.sql(THE_FIRST_OF_EACH).collect():
        print(f"  {row.reason}: {row.keys} {row.text}")
    spark.stop()


if __name__ == "__main__":
    match sys.argv[1:]:
        case [group] if not group.startswith("-"):
            main(group)
        case _:
            sys.exit(__doc__)
