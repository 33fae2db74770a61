/* Limits of what crosses a process, each with its reason. */
#ifndef HEARTH_PROTO_LIMITS_H
#define HEARTH_PROTO_LIMITS_H

/* The largest message: logits of a vocabulary of 1 Mi tokens (4 MiB) and a prompt beside it. */
#define MAX_MESSAGE_BYTES (8u << 20)

/* A token id is below this in every vocabulary known; keeps counts in 32 bits everywhere. */
#define MAX_VOCABULARY (1u << 20)

/* Tokens of one request, prompt included: the longest contexts trained so far. */
#define MAX_CONTEXT (1u << 20)

/* A token of the prompt and one of the answer: less serves nobody. */
#define MIN_CONTEXT 2u

/* Text of a prompt: four times the longest context in tokens would not fit a message anyway. */
#define MAX_PROMPT_BYTES (4u << 20)

/* A long poll ends by then, so that a client notices a dead scheduler. */
#define MAX_READ_WAIT_MS 10000u

/* A request that no client has asked about for so long is cancelled: one that still wants it has
 * missed three polls. */
#define MAX_UNREAD_MS (3 * MAX_READ_WAIT_MS)

/* Requests waiting for the worker. */
#define DEFAULT_QUEUE_LIMIT 64u

/* A lent region's key. */
#define MAX_KEY_BYTES 64u

/* Regions lent at once: a worker needs six. */
#define MAX_REGIONS 32u

/* Experts moved by one request: a second of copies at the slowest measured rate. */
#define MAX_MOVES 4096u

/* The longest path a socket may have (sun_path less its end). */
#define MAX_SOCKET_PATH 107u

/* Layers and experts a model may have; the largest published have 94 and 512. */
#define MAX_LAYERS 512u
#define MAX_EXPERTS 1024u

#endif
