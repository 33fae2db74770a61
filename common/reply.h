/* Answers to a server's calls that are messages. */
#ifndef HEARTH_COMMON_REPLY_H
#define HEARTH_COMMON_REPLY_H

#include <protobuf-c/protobuf-c.h>

#include "common/endpoint.h"

/* Packs the message and answers with it. */
void call_reply_message(struct call *call, const ProtobufCMessage *message);

#endif
