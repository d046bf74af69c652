/*
 * doorbell.pml: a model of the doorbell, section 3.1 of api/spec/worker.md, for Spin (spinroot.com).
 *
 * Claims, for every interleaving and every delay of a store:
 *   1. No lost wake-up: when no process can move any more, everything that was put has been taken, and every frame read.
 *   2. No descriptor is taken before it is whole.
 *   3. At most three bells are ever unread. Before the consumer stores the odd number n+2 it reads the socket empty. After
 *      that can still arrive: the bell for n-2 or older that the producer has decided on and not sent, the bell for n if the
 *      stores of n+1 and n+2 are still in a store buffer, and the bell for n+2.
 *
 * A consumer that spins before it sleeps looks at tail again before "asleep" is stored. A look that finds something is "take", one
 * that finds nothing changes no state, and any time may pass between two steps. So it has no steps of its own here.
 *
 * One direction is enough: the other one is the same with the names exchanged, and the two share no word of memory. They
 * do share the socket, so the other direction may wake the consumer of this one for nothing. The frames of this model do
 * that.
 *
 * Memory. A store goes into the processor's store buffer and reaches memory later, when a flusher process moves it. A load
 * reads memory at once, and so may overtake the stores before it. This is x86's store buffering (TSO: Owens, Sarkar and
 * Sewell, "A better x86 memory model", 2009). The producer is weaker than that, like arm64: descriptors and tails have a
 * buffer each, and only release keeps a tail behind the descriptors that it shows, so a later descriptor may overtake an
 * earlier tail. A full fence waits until the process's own buffers are empty. System calls on the socket do not order
 * memory in this model: the protocol does not rely on them.
 *
 * model.sh checks the model as it is, and then once with each of these, which must fail:
 *   NO_FENCE_PRODUCER  step "ring?" without its fence
 *   NO_FENCE_CONSUMER  step "sleep" without its fence
 *   NO_RECHECK         step "sleep" without its second check of the ring
 *   DRAIN_AFTER        the socket is read empty after "asleep" was stored and the ring checked, instead of before
 *   NO_RELEASE         tail is stored without release
 */

#define PUTS   4	/* descriptors; enough for two sleeps with a run of puts in each */
#define FRAMES 1	/* other frames on the socket: they wake the consumer when the ring is empty */

/* Shared memory: the stores that have reached it. */
byte tail = 0;
byte asleep = 0;		/* the counter named sleep in the specification */
bool whole[PUTS] = false;	/* descriptor i is there */

/* Store buffers. */
chan tailStores  = [PUTS] of { byte };
chan dataStores  = [PUTS] of { byte };
chan sleepStores = [4] of { byte };

/* The socket. */
mtype = { bell, frame };
chan socket = [8] of { mtype };
byte bellsUnread = 0;

/* For the claims only: no process but the owner reads them to decide. */
byte head = 0;			/* taken by the consumer */
byte framesRead = 0;

active proctype FlushData()
{
	byte i;
end:	do
	:: atomic { dataStores?i -> whole[i] = true }
	od
}

active proctype FlushTail()
{
	byte v;
end:	do
#ifdef NO_RELEASE
	:: atomic { tailStores?v -> tail = v }
#else
	/* Release: a tail waits for the descriptors that it shows. Descriptors are flushed in order, so the last one decides. */
	:: atomic { tailStores?[v] && whole[tail] -> tailStores?v; tail = v }
#endif
	od
}

active proctype FlushSleep()
{
	byte v;
end:	do
	:: atomic { sleepStores?v -> asleep = v }
	od
}

active proctype Producer()
{
	byte put = 0, rung = 0, seen, frames = 0;

	do
	:: put < PUTS ->
		do	/* a run of puts, one or more */
		:: put < PUTS ->
			dataStores!put;
			put++;
			tailStores!put;
			if
			:: skip
			:: break
			fi
		:: else -> break
		od;
		/* ring? */
#ifndef NO_FENCE_PRODUCER
		empty(tailStores) && empty(dataStores);
#endif
		seen = asleep;
		if
		:: seen % 2 == 1 && seen != rung ->
			rung = seen;
			atomic {
				socket!bell;
				bellsUnread++;
				assert(bellsUnread <= 3)
			}
		:: else
		fi
	:: frames < FRAMES ->
		frames++;
		socket!frame
	:: put == PUTS && frames == FRAMES ->
		break
	od
}

inline readSocketEmpty()
{
	do
	:: atomic { socket?bell -> bellsUnread-- }
	:: atomic { socket?frame -> framesRead++ }
	:: empty(socket) -> break
	od
}

active proctype Consumer()
{
	byte mine = 0;		/* the private copy of the sleep counter */
	byte seen;
	bool unread = true;	/* something may lie in the socket that was not read since it was last waited for */

	do
	:: 	/* take */
		seen = tail;
		if
		:: seen != head ->
			assert(whole[head]);
			head++
		:: else ->
			/* sleep */
#ifndef DRAIN_AFTER
			if	/* 1: a caller that has read since its last wait may leave it out */
			:: readSocketEmpty(); unread = false
			:: !unread
			fi;
#endif
			mine++;				/* 2 */
			sleepStores!mine;
#ifndef NO_FENCE_CONSUMER
			empty(sleepStores);		/* 3 */
#endif
#ifdef NO_RECHECK
			seen = head;
#else
			seen = tail;			/* 4 */
#endif
			if
			:: seen != head ->
				mine++;
				unread = true;
				sleepStores!mine
			:: else ->
#ifdef DRAIN_AFTER
				readSocketEmpty();
#endif
end_parked:			nempty(socket);		/* 5 */
				mine++;
				sleepStores!mine;
				if	/* now or at the next step 1: a caller may do either */
				:: readSocketEmpty()
				:: unread = true
				fi
			fi
		fi
	od
}

/* When no other process can move, the consumer is parked. There must be nothing left for it. */
active proctype Monitor()
{
	timeout;
	assert(head == PUTS);
	assert(framesRead == FRAMES)
}
