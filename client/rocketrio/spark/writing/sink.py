"""Creates the writers of the format `rocketmq` on the driver, where wrong options, modes and columns are refused.

df.write.format("rocketmq").option("topic", "orders").mode("append").save()
df.writeStream.format("rocketmq").option("topic", "orders").option("checkpointLocation", ...).start()
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql.types import StructType

from rocketrio.spark.errors import OptionError
from rocketrio.spark.writing.options import parse_write_options

if TYPE_CHECKING:
    from rocketrio.spark.writing.stream_writer import RocketMQStreamWriter
    from rocketrio.spark.writing.writer import RocketMQWriter


def batch_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "RocketMQWriter":
    """Return the writer of `df.write`. Raises OptionError, SchemaError."""
    from rocketrio.spark.writing.writer import RocketMQWriter

    if overwrite:
        raise OptionError(
            "mode overwrite: a topic's messages cannot be replaced; give .mode('append')"
        )
    options = parse_write_options(given, is_streaming=False)
    return RocketMQWriter(options, schema, job_id=uuid4().hex)


def stream_writer(
    given: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> "RocketMQStreamWriter":
    """Return the writer of `df.writeStream`. Raises OptionError, SchemaError."""
    from rocketrio.spark.writing.stream_writer import RocketMQStreamWriter

    if overwrite:
        raise OptionError(
            "outputMode complete: a topic's messages cannot be replaced by those of each trigger; give"
            " outputMode('append'), with a watermark for aggregates, or write batches of outputMode('update')"
            " in foreachBatch"
        )
    return RocketMQStreamWriter(parse_write_options(given, is_streaming=True), schema)
