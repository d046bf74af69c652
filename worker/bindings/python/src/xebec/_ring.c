/*
 * xebec._ring: the descriptor rings of the worker protocol (api/spec/worker.md, section 3), and waiting for them.
 *
 * Python has no memory fences, and a consumer that sleeps without them can miss its wake-up. This file has only the
 * steps that need them. Python (_worker.py) interprets descriptors and frames.
 *
 *     next(midframe)  waits; returns a request (9 integers), (bytes, descriptors) as read from the socket, or None
 *                     after a signal. Empty bytes mean that the peer hung up.
 *     take()          returns the next request, or None if there is none; never waits.
 *     reply(...)      pushes a response and rings if the peer sleeps.
 *
 * The order of accesses is that of table 3.1 of the specification, whose step numbers are in the comments. Segment A is
 * mapped read-only. An atomic load that is not lock-free would write to it, hence the check below.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#if !defined(__linux__) || ATOMIC_LLONG_LOCK_FREE != 2 || ATOMIC_INT_LOCK_FREE != 2 || UINTPTR_MAX < UINT64_MAX || \
    __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "xebec._ring needs Linux on a 64-bit little-endian machine with lock-free atomics; the worker runs without it too"
#endif

enum {
    TAIL_OFFSET = 128,
    HEAD_OFFSET = 256,
    SLEEP_OFFSET = 384,
    RING_OFFSET = 4096,
    DESCRIPTOR_BYTES = 64,
    MIN_ENTRIES = 16,
    MAX_ENTRIES = 4096,
    RECEIVE_BYTES = 65536, /* one read usually takes a whole frame; the parser in Python joins the others */
    MAX_FDS = 8,           /* the protocol sends two; more are reported rather than lost silently */
    REQUEST_FIELDS = 9,
    RESPONSE_FIELDS = 10,
};

static const unsigned char BELL = 0x01;

/* Tells the processor that this is a loop that waits. */
#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ __volatile__("yield")
#else
#define RELAX() (void)0
#endif

typedef struct {
    uint64_t batch;
    uint32_t generation;
    uint16_t kind, flags;
    uint32_t count, reserved1;
    uint64_t in_off, in_len, out_off, out_cap;
    uint32_t budget_micros, reserved2;
} Request;

typedef struct {
    uint64_t batch;
    uint32_t generation;
    uint16_t kind, status;
    uint32_t count, flags;
    uint64_t out_off, out_len, need, work_nanos, reserved;
} Response;

_Static_assert(sizeof(Request) == DESCRIPTOR_BYTES && sizeof(Response) == DESCRIPTOR_BYTES, "descriptors are 64 bytes");

/* When to expect the next request: package api/busypoll, which has the reasons. */
typedef struct {
    int64_t bound, mean, began; /* in nanoseconds; a bound of 0 turns spinning off */
    int vain, skip;             /* spins in vain, less those that found something; waits without a spin */
    int waiting, spun;
} Waits;

typedef struct {
    PyObject_HEAD
    Py_buffer a, b;           /* the gateway's segment and the worker's; held so that neither is unmapped */
    int sock, wake;
    uint64_t entries;
    uint64_t taken, put;      /* own cursors; segment B has copies for the gateway */
    uint32_t sleep;           /* own sleep counter, copied in the same way */
    Waits waits;
    int unread;               /* the socket may have bells of a sleep that did not wait */
    int quiet;                /* responses were pushed for which the peer was not rung */
    uint32_t rung;            /* the peer's sleep value that was last rung for; 0 is even and so never such a value */
    unsigned char *received;
    PyObject *violation;      /* the exception to raise when the gateway breaks the protocol */
} Ring;

static _Atomic uint64_t *cursor(Py_buffer *segment, size_t offset)
{
    return (_Atomic uint64_t *)((char *)segment->buf + offset);
}

static _Atomic uint32_t *sleeping(Py_buffer *segment)
{
    return (_Atomic uint32_t *)((char *)segment->buf + SLEEP_OFFSET);
}

static char *descriptor(Ring *r, Py_buffer *segment, uint64_t number)
{
    return (char *)segment->buf + RING_OFFSET + DESCRIPTOR_BYTES * (number & (r->entries - 1));
}

enum { FAR_BOUNDS = 4, WEIGHT = 8, MAX_VAIN = 10, MAX_BUSY_MICROS = 1000000 };

static Waits new_waits(int64_t bound)
{
    return (Waits){.bound = bound, .mean = FAR_BOUNDS * bound};
}

/* There is nothing to do at now. Returns until when to spin. */
static int64_t idle(Waits *w, int64_t now)
{
    if (w->bound <= 0 || w->waiting)
        return now;
    w->waiting = 1;
    w->began = now;
    w->spun = w->mean <= w->bound && w->skip == 0;
    if (w->skip > 0)
        w->skip--;
    return w->spun ? now + w->bound : now;
}

/* A request has come, after idle. */
static void arrived(Waits *w, int64_t now)
{
    int64_t wait = now - w->began, far = FAR_BOUNDS * w->bound;
    w->waiting = 0;
    if (w->spun && wait > w->bound) {
        w->vain += w->vain < MAX_VAIN;
        w->skip = 1 << w->vain;
    } else if (w->spun) {
        w->vain -= w->vain > 0;
    }
    w->mean += ((wait < far ? wait : far) - w->mean) / WEIGHT;
}

static int64_t nanos(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* The consumer's "take". Returns NULL without an exception if the ring is empty. */
static PyObject *take(Ring *r)
{
    Request q;
    uint64_t tail = atomic_load_explicit(cursor(&r->a, TAIL_OFFSET), memory_order_acquire);
    if (tail == r->taken)
        return NULL;
    if (tail - r->taken > r->entries) /* unsigned: a tail that moved backwards looks far ahead */
        return PyErr_Format(r->violation, "the ring of requests shows %llu put and %llu taken, with room for %llu",
                            (unsigned long long)tail, (unsigned long long)r->taken, (unsigned long long)r->entries);
    memcpy(&q, descriptor(r, &r->a, r->taken), sizeof q);
    if (r->waits.waiting)
        arrived(&r->waits, nanos());
    r->taken++;
    atomic_store_explicit(cursor(&r->b, HEAD_OFFSET), r->taken, memory_order_release);
    if (q.flags || q.reserved1 || q.reserved2)
        return PyErr_Format(r->violation, "request of batch %llu: reserved fields are not 0", (unsigned long long)q.batch);

    PyObject *fields[REQUEST_FIELDS] = {
        PyLong_FromUnsignedLongLong(q.batch),   PyLong_FromUnsignedLong(q.generation),   PyLong_FromUnsignedLong(q.kind),
        PyLong_FromUnsignedLong(q.count),       PyLong_FromUnsignedLongLong(q.in_off),   PyLong_FromUnsignedLongLong(q.in_len),
        PyLong_FromUnsignedLongLong(q.out_off), PyLong_FromUnsignedLongLong(q.out_cap), PyLong_FromUnsignedLong(q.budget_micros),
    };
    PyObject *request = PyTuple_New(REQUEST_FIELDS);
    for (int i = 0; i < REQUEST_FIELDS; i++) {
        if (request == NULL || fields[i] == NULL) {
            for (int j = i; j < REQUEST_FIELDS; j++)
                Py_XDECREF(fields[j]);
            Py_XDECREF(request);
            return PyErr_NoMemory();
        }
        PyTuple_SET_ITEM(request, i, fields[i]);
    }
    return request;
}

/* Returns (bytes, descriptors) for Python. It owns the descriptors until then, so it closes them on failure. */
static PyObject *socket_event(const unsigned char *data, Py_ssize_t n, const int *fds, int count)
{
    PyObject *list = PyTuple_New(count);
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *fd = PyLong_FromLong(fds[i]);
        if (fd == NULL)
            Py_CLEAR(list);
        else
            PyTuple_SET_ITEM(list, i, fd);
    }
    PyObject *event = list == NULL ? NULL : Py_BuildValue("(y#N)", (const char *)data, n, list);
    if (event == NULL)
        for (int i = 0; i < count; i++)
            close(fds[i]);
    return event;
}

/* Reads what the socket has, without waiting. Returns NULL without an exception if there is nothing but bells. */
static PyObject *receive(Ring *r, int midframe)
{
    union {
        char bytes[CMSG_SPACE(MAX_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = r->received, .iov_len = RECEIVE_BYTES};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do
        n = recvmsg(r->sock, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return NULL;
    if (n < 0 && errno == ECONNRESET)
        n = 0; /* a gateway that died before it read our bytes counts as a hang-up */
    if (n < 0)
        return PyErr_SetFromErrno(PyExc_OSError);

    int fds[MAX_FDS], count = 0;
    for (struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL; c != NULL; c = CMSG_NXTHDR(&message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        int held = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        if (held > MAX_FDS - count)
            held = MAX_FDS - count;
        memcpy(fds + count, CMSG_DATA(c), held * sizeof(int));
        count += held;
    }
    /* A byte in the middle of a frame belongs to the frame, also if it looks like a bell. */
    ssize_t bells = 0;
    while (!midframe && count == 0 && bells < n && r->received[bells] == BELL)
        bells++;
    if (n > 0 && bells == n)
        return NULL;
    return socket_event(r->received + bells, n - bells, fds, count);
}

/* Steps 2 to 4 of "sleep". Returns true if the ring is still empty; the peer rings for anything it pushes from now on. */
static int park(Ring *r)
{
    atomic_store_explicit(sleeping(&r->b), ++r->sleep, memory_order_relaxed); /* 2: odd */
    atomic_thread_fence(memory_order_seq_cst);                               /* 3 */
    return atomic_load_explicit(cursor(&r->a, TAIL_OFFSET), memory_order_acquire) == r->taken; /* 4 */
}

static void awake(Ring *r)
{
    atomic_store_explicit(sleeping(&r->b), ++r->sleep, memory_order_release); /* even */
}

/*
 * Waits, without a limit, until the socket is readable. Returns 1 after a signal and -1 with an exception. Python's
 * signal handler writes to the wake descriptor: without it, a signal just before poll would not end the wait.
 */
static int wait_readable(Ring *r)
{
    struct pollfd watched[2] = {{.fd = r->sock, .events = POLLIN}, {.fd = r->wake, .events = POLLIN}};
    int n, err;
    Py_BEGIN_ALLOW_THREADS
    n = poll(watched, 2, -1);
    err = errno;
    Py_END_ALLOW_THREADS
    if (n < 0 && err != EINTR) {
        errno = err;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    if (n < 0 || watched[1].revents) {
        char drained[64];
        while (read(r->wake, drained, sizeof drained) > 0)
            ;
        return 1;
    }
    return 0;
}

/*
 * Looks at the ring, before the worker sleeps, while a request is likely to come soon. Returns true if there is one. Until
 * then this side counts as awake, and the gateway rings no bell.
 */
static int spin(Ring *r)
{
    if (r->waits.bound == 0)
        return 0;
    int64_t now = nanos(), until = idle(&r->waits, now);
    int found = 0;
    if (now >= until)
        return 0;
    Py_BEGIN_ALLOW_THREADS /* the model may have threads */
    while (!found && now < until) {
        found = atomic_load_explicit(cursor(&r->a, TAIL_OFFSET), memory_order_acquire) != r->taken;
        RELAX();
        now = nanos();
    }
    Py_END_ALLOW_THREADS
    return found;
}

/* Rings unless the peer is awake or has been rung for this sleep. The next read notices a peer that is gone. */
static int ring_bell(Ring *r)
{
    r->quiet = 0;
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t s = atomic_load_explicit(sleeping(&r->a), memory_order_acquire);
    if (!(s & 1) || s == r->rung)
        return 0;
    r->rung = s;
    ssize_t n;
    int err;
    do {
        Py_BEGIN_ALLOW_THREADS
        n = send(r->sock, &BELL, 1, MSG_NOSIGNAL);
        err = errno;
        Py_END_ALLOW_THREADS
    } while (n < 0 && err == EINTR);
    if (n < 0 && err != EPIPE && err != ECONNRESET) {
        errno = err;
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    return 0;
}

static PyObject *ring_next(PyObject *self, PyObject *arg)
{
    Ring *r = (Ring *)self;
    int midframe = PyObject_IsTrue(arg);
    PyObject *event = take(r);
    while (event == NULL && !PyErr_Occurred()) {
        if (r->quiet && ring_bell(r) < 0)
            return NULL;
        /*
         * Step 1. A wait ends with a read, so there is something to read only if the peer rang for a sleep that found
         * requests instead of waiting. Reading it then keeps bells from piling up.
         */
        if (r->unread) {
            r->unread = 0;
            event = receive(r, midframe);
            if (event != NULL || PyErr_Occurred())
                break;
        }
        if (spin(r)) {
            event = take(r);
            continue;
        }
        if (park(r)) {
            int interrupted = wait_readable(r); /* step 5 */
            awake(r);
            if (interrupted < 0 || (interrupted && PyErr_CheckSignals() < 0))
                return NULL;
            if (interrupted) {
                r->unread = 1;
                Py_RETURN_NONE;
            }
            event = receive(r, midframe);
            if (event != NULL || PyErr_Occurred())
                break;
        } else {
            awake(r);
            r->unread = 1;
        }
        event = take(r);
    }
    return event;
}

static PyObject *ring_take(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *request = take((Ring *)self);
    if (request == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return request;
}

/* Pushes a response. Returns -1 with an exception. */
static int push(Ring *r, PyObject *const *args, Py_ssize_t n)
{
    unsigned long long f[RESPONSE_FIELDS];
    if (n != RESPONSE_FIELDS) {
        PyErr_Format(PyExc_TypeError, "a response has %d integers, got %zd arguments", RESPONSE_FIELDS, n);
        return -1;
    }
    for (int i = 0; i < RESPONSE_FIELDS; i++) {
        f[i] = PyLong_AsUnsignedLongLong(args[i]);
        if (f[i] == (unsigned long long)-1 && PyErr_Occurred())
            return -1;
    }
    Response s = {
        .batch = f[0], .generation = (uint32_t)f[1], .kind = (uint16_t)f[2], .status = (uint16_t)f[3], .count = (uint32_t)f[4],
        .flags = (uint32_t)f[5], .out_off = f[6], .out_len = f[7], .need = f[8], .work_nanos = f[9],
    };
    memcpy(descriptor(r, &r->b, r->put), &s, sizeof s);
    r->put++;
    atomic_store_explicit(cursor(&r->b, TAIL_OFFSET), r->put, memory_order_release);
    return 0;
}

static PyObject *ring_reply(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    Ring *r = (Ring *)self;
    if (push(r, args, n) < 0 || ring_bell(r) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *ring_push(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    Ring *r = (Ring *)self;
    if (push(r, args, n) < 0)
        return NULL;
    r->quiet = 1;
    Py_RETURN_NONE;
}

static PyObject *ring_ring(PyObject *self, PyObject *unused)
{
    Ring *r = (Ring *)self;
    (void)unused;
    if (r->quiet && ring_bell(r) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Everything is set here and not in __init__, so that no ring exists without segments. */
static PyObject *ring_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *a, *b, *violation;
    int sock, wake;
    unsigned int entries, busy_micros = 0;
    static char *names[] = {"sock", "wake", "a", "b", "entries", "violation", "busy_micros", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "iiOOIO|I", names, &sock, &wake, &a, &b, &entries, &violation, &busy_micros))
        return NULL;
    if (busy_micros > MAX_BUSY_MICROS)
        return PyErr_Format(PyExc_ValueError, "busy_micros %u: expected at most %d", busy_micros, MAX_BUSY_MICROS);
    if (entries < MIN_ENTRIES || entries > MAX_ENTRIES || (entries & (entries - 1)))
        return PyErr_Format(PyExc_ValueError, "%u entries: expected a power of two from %d to %d", entries, MIN_ENTRIES, MAX_ENTRIES);

    Ring *r = (Ring *)type->tp_alloc(type, 0); /* zeroed: dealloc may run at any point from here on */
    if (r == NULL)
        return NULL;
    r->sock = sock;
    r->wake = wake;
    r->entries = entries;
    r->waits = new_waits(INT64_C(1000) * busy_micros);
    r->violation = violation;
    Py_INCREF(violation);
    Py_ssize_t least = RING_OFFSET + (Py_ssize_t)DESCRIPTOR_BYTES * entries;
    if (PyObject_GetBuffer(a, &r->a, PyBUF_SIMPLE) < 0 || PyObject_GetBuffer(b, &r->b, PyBUF_WRITABLE) < 0)
        goto fail;
    if (r->a.len < least || r->b.len < least || (uintptr_t)r->a.buf % 8 || (uintptr_t)r->b.buf % 8) {
        PyErr_Format(PyExc_ValueError, "a ring of %u entries needs segments of %zd aligned bytes or more", entries, least);
        goto fail;
    }
    r->received = PyMem_Malloc(RECEIVE_BYTES);
    if (r->received == NULL) {
        PyErr_NoMemory();
        goto fail;
    }
    return (PyObject *)r;
fail:
    Py_DECREF(r);
    return NULL;
}

static void ring_dealloc(PyObject *self)
{
    Ring *r = (Ring *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (r->a.obj != NULL)
        PyBuffer_Release(&r->a);
    if (r->b.obj != NULL)
        PyBuffer_Release(&r->b);
    PyMem_Free(r->received);
    Py_XDECREF(r->violation);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef ring_methods[] = {
    {"next", ring_next, METH_O, "next(midframe): wait for a request, bytes on the socket, or a signal (None)."},
    {"take", ring_take, METH_NOARGS, "take(): the next request, or None if there is none."},
    {"reply", (PyCFunction)(void (*)(void))ring_reply, METH_FASTCALL, "reply(10 integers): push a response, ring if the peer sleeps."},
    {"push", (PyCFunction)(void (*)(void))ring_push, METH_FASTCALL, "push(10 integers): push a response. The next ring, reply or wait rings."},
    {"ring", ring_ring, METH_NOARGS, "ring(): ring for what was pushed, if the peer sleeps."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot ring_slots[] = {
    {Py_tp_doc, "The descriptor rings of one generation of segments. One thread at a time."},
    {Py_tp_methods, ring_methods},
    {Py_tp_new, ring_new},
    {Py_tp_dealloc, ring_dealloc},
    {0, NULL},
};

static PyType_Spec ring_spec = {
    .name = "xebec._ring.Ring",
    .basicsize = sizeof(Ring),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = ring_slots,
};

static int module_exec(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&ring_spec);
    if (type == NULL || PyModule_AddObject(module, "Ring", type) < 0) {
        Py_XDECREF(type);
        return -1;
    }
    return 0;
}

/* For the table of tests that all implementations pass: whether each of these waits would begin with a spin. */
static PyObject *spins(PyObject *module, PyObject *args)
{
    long long bound;
    PyObject *all;
    (void)module;
    if (!PyArg_ParseTuple(args, "LO!", &bound, &PyList_Type, &all))
        return NULL;
    Py_ssize_t n = PyList_GET_SIZE(all);
    PyObject *list = PyList_New(n);
    Waits w = new_waits(bound);
    int64_t now = 0;
    for (Py_ssize_t i = 0; list != NULL && i < n; i++) {
        long long wait = PyLong_AsLongLong(PyList_GET_ITEM(all, i));
        if (wait == -1 && PyErr_Occurred()) {
            Py_DECREF(list);
            return NULL;
        }
        PyList_SET_ITEM(list, i, PyBool_FromLong(idle(&w, now) > now));
        now += wait;
        if (w.waiting)
            arrived(&w, now);
    }
    return list;
}

static PyMethodDef module_methods[] = {
    {"spins", spins, METH_VARARGS, "spins(bound, waits): which of these waits, in nanoseconds, would begin with a spin."},
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT, .m_name = "xebec._ring", .m_doc = "The worker protocol's rings.", .m_size = 0, .m_methods = module_methods, .m_slots = module_slots};

PyMODINIT_FUNC PyInit__ring(void)
{
    return PyModuleDef_Init(&module_def);
}
