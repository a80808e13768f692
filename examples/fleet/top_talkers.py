# SPDX-License-Identifier: MIT OR Apache-2.0
"""Largest talkers of all probes that send flow records to one topic.

usage: top_talkers.py BROKER:PORT TOPIC [--once FILE]
"""
import json
import sys

from pyspark.sql import SparkSession, functions as f


def talkers(flows):
    """Packets and bytes that each address sent, as originator or as responder."""
    def field(name):
        return f.get_json_object(f.col("value").cast("string"), f"$['{name}']")

    flows = flows.select(
        field("id.orig_h").alias("originator"), field("id.resp_h").alias("responder"),
        *(field(name).cast("long").alias(name) for name in COUNTS),
        field("type").alias("type"),
    ).where("type = 'flow'")
    sent = f.explode(f.array(
        f.struct(f.col("originator").alias("source"), f.col("orig_pkts").alias("packets"), f.col("orig_ip_bytes").alias("bytes")),
        f.struct(f.col("responder").alias("source"), f.col("resp_pkts").alias("packets"), f.col("resp_ip_bytes").alias("bytes")),
    )).alias("sent")
    sums = flows.select(sent).select("sent.*").groupBy("source")
    return sums.agg(f.sum("packets").alias("packets"), f.sum("bytes").alias("bytes"))


COUNTS = ("orig_pkts", "resp_pkts", "orig_ip_bytes", "resp_ip_bytes")


def main():
    broker, topic, *once = sys.argv[1:]
    spark = SparkSession.builder.appName("ringtap-top-talkers").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    flows = (
        spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic).option("startingOffsets", "earliest").load()
    )

    def show(batch, _number):
        rows = [row.asDict() for row in batch.orderBy(f.desc("bytes")).collect()]
        if once:
            with open(once[1], "w", encoding="utf-8") as out:
                out.writelines(json.dumps(row) + "\n" for row in rows)
        for row in rows[:10]:
            print(f"{row['source']:40} {row['packets']:12} packets {row['bytes']:16} bytes")

    stream = talkers(flows).writeStream.outputMode("complete").foreachBatch(show)
    if once:
        stream = stream.trigger(availableNow=True)
    stream.start().awaitTermination()


main()
