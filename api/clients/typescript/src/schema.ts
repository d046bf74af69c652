// Generated from api/spec/openapi.yaml by `npm run generate`. Do not edit.

export interface paths {
    "/{function}": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /**
         * Describe what a function takes and answers
         * @description `input` and `output` are JSON Schemas (draft 2020-12) of the members with these names of a request and of its answer, and `example` is a body
         *     for predict. A flat array in row-major order is an input too, which the schema does not say.
         */
        get: operations["describe"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/{function}/feedback": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Report how good predictions were
         * @description Selection policies learn from feedback which of a function's models to ask, over all callers and for each context.
         *
         *     Feedback names a prediction by its `query_id` or by its `input`. Only the first feedback for a `query_id` counts. Feedback gives
         *     the correct answer (`label`, in the form of an output), whether the answer was correct (`correct`), or how wrong it was (`loss`).
         *     The whole request is checked before any of it counts.
         */
        post: operations["feedback"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/{function}/predict": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /**
         * Call a function
         * @description A JSON body holds one input or a list of them. A body of another type (bytes, text, an image, audio, video, or what the input's
         *     `media` declares) is the only input of a model with a single input: the bytes unchanged for `bytes`, little-endian, row-major
         *     numbers for other types. A type that an input with `media` does not take is 415. `text/csv` holds rows for a model whose inputs are all scalars,
         *     below a line with the names of the columns. A form (`multipart/form-data`) has a part for each
         *     input, by its name, or `input` for a single one, or several parts `input_batch`; parts with the names of JSON's options are options.
         *
         *     With `Accept: application/octet-stream` the answer to one query is its only output: the bytes of `bytes` or `string`, little-endian,
         *     row-major numbers of a fixed shape otherwise. So it is with the media type that the output's `media` declares, and with a range that has it, such
         *     as `image/*`. The headers `Xebec-Query-Id`, `Xebec-Default`, `Xebec-Default-Explanation`,
         *     `Xebec-Confidence`, `Xebec-Models`, `Xebec-Late`, `Xebec-Failed` and `Xebec-Dropped` say what JSON says beside the output; lists are
         *     separated by commas. A batch and other outputs are 406. Errors are JSON.
         *
         *     A model with `stream: true` answers in parts: server-sent events with `Accept: text/event-stream`, JSON lines with `application/jsonl`, or bytes
         *     with `application/octet-stream`. Otherwise `output` is the list of all outputs. A batch is 406.
         *
         *     If there is no prediction, a function with a default output answers 200 with the default, and a function without one answers an
         *     error.
         */
        post: operations["predict"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/{function}/update": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        get?: never;
        put?: never;
        /** Clipper's name for feedback */
        post: operations["update"];
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
    "/docs/functions": {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        /** List the names of functions */
        get: operations["listNames"];
        put?: never;
        post?: never;
        delete?: never;
        options?: never;
        head?: never;
        patch?: never;
        trace?: never;
    };
}
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        BatchPrediction: {
            batch_predictions: (components["schemas"]["Prediction"] | (components["schemas"]["NativeError"] & {
                /** Format: int64 */
                query_id?: number;
            }))[];
        };
        CallDescription: {
            /** @description the output if there is no prediction; absent if there is none */
            default?: unknown;
            /** @description a body for predict; absent if it would have more than 1,024 elements */
            example?: {
                [key: string]: unknown;
            };
            function: components["schemas"]["Name"];
            /** @description JSON Schema of `input` */
            input: {
                [key: string]: unknown;
            };
            inputs: components["schemas"]["CallTensor"][];
            /** @description the output that feedback is about, if there are several */
            label?: string;
            /** @description the candidates and the versions that serve for them */
            models: components["schemas"]["VersionOfModel"][];
            /** @description JSON Schema of `output`; of one output of a stream */
            output: {
                [key: string]: unknown;
            };
            outputs: components["schemas"]["CallTensor"][];
            raw: {
                /** @description whether a body may be the input's bytes */
                input: boolean;
                /** @description whether the answer may be the output's bytes */
                output: boolean;
            };
            /** @description the latency objective in milliseconds */
            slo_ms: number;
            /** @description whether an answer is a stream of outputs */
            streams: boolean;
        };
        CallTensor: {
            /** @description element type, such as float32 */
            dtype: string;
            /** @description media type of the bytes */
            media?: string;
            name: string;
            /** @description dimensions of one query; -1 is any size */
            shape: number[];
        };
        /** @description Exactly one of query_id and input, and exactly one of label, correct and loss. Unknown members are ignored. */
        Feedback: {
            context?: string;
            correct?: boolean;
            /** @description as in PredictRequest */
            input?: unknown;
            /** @description the correct answer, in the form of Prediction.output */
            label?: unknown;
            loss?: number;
            /** Format: int64 */
            query_id?: number;
            /** @description Clipper's name for context */
            uid?: string | number;
        } & ((unknown | unknown) & (unknown | unknown | unknown));
        FeedbackBatch: {
            feedback_batch: components["schemas"]["Feedback"][];
        };
        FeedbackResult: {
            /** @description why the feedback was not counted, or only in part */
            cause?: string;
            /** Format: int64 */
            query_id?: number;
            /**
             * @description late, unknown and busy are errors (410, 404, 503) if the request has a single feedback
             * @enum {string}
             */
            status: "counted" | "counted_in_part" | "pending" | "duplicate" | "nothing_to_learn" | "late" | "unknown" | "busy";
        };
        FeedbackResults: {
            /** @description in the order of the request */
            feedback_results: components["schemas"]["FeedbackResult"][];
        };
        FunctionNames: {
            functions: components["schemas"]["Name"][];
            /** Format: int64 */
            total: number;
        };
        Name: string;
        NativeError: {
            cause: string;
            /** @example deadline_exceeded */
            code: string;
            /** @enum {string} */
            error: "Json error" | "Query processing error";
            /** @description the answer's X-Request-Id; not in the errors of single queries of a batch */
            request_id?: string;
        };
        Prediction: {
            /** @description weight of the models that agree with the answer, as a share of all models asked */
            confidence: number;
            /** @description whether the output is the function's default */
            default: boolean;
            default_explanation?: string;
            /** @description models that the plan had no room for */
            dropped?: components["schemas"]["VersionOfModel"][];
            /** @description models that were asked and failed */
            failed?: components["schemas"]["VersionOfModel"][];
            /** @description models that were asked and did not answer in time */
            late?: components["schemas"]["VersionOfModel"][];
            /** @description models that contributed to the answer */
            models: components["schemas"]["VersionOfModel"][];
            /** @description value of the model's output, or an object of values if it has several; bytes are {b64: …}, an object with the one member b64, their canonical base64 */
            output: unknown;
            /** Format: int64 */
            query_id: number;
        };
        /** @description Exactly one of input, input_batch, dataframe_split and dataframe_records. For a model with several inputs, an input is an object that maps names to values; if all inputs are scalars, it may be an array of the values in the order of the inputs. The two forms of MLflow are for models whose inputs are all scalars: each row is one query, and the answer is that of input_batch. Unknown members are ignored, but names that other protocols have for an input (inputs, instances, data) and misspellings of input are 400. */
        PredictRequest: {
            /** @description same as the header Xebec-Context */
            context?: string;
            /** @description One object from columns to values for each row, with all columns. */
            dataframe_records?: Record<string, never>[];
            /** @description A table as pandas' to_dict(orient='split') gives it. The columns are the model's inputs, in any order, each one once. Other members, as index, are ignored. */
            dataframe_split?: {
                columns: string[];
                data: unknown[][];
            };
            /** @description an array nested like the declared shape, a number, a boolean, a string, {b64: …} for bytes (a string is then its UTF-8), or an object of these */
            input?: unknown;
            input_batch?: unknown[];
            /** @description the function's default replaces an answer with less confidence; overrides the function's min_confidence */
            min_confidence?: number;
            /** @description ask only these candidates: name or name@version */
            models?: string[];
            /** @description how to answer, for models that ask for parameters; at most 4 KiB. Equal inputs with other parameters are other queries */
            parameters?: Record<string, never>;
            /** @description part of the key in the prediction cache */
            salt?: string | number;
            /** @description how long after its arrival a query is still evaluated for the cache once its caller has been answered */
            ttl_ms?: number;
            /** @description ask only candidates of this version */
            version?: string;
        } & (unknown | unknown | unknown | unknown);
        /** @example digits-svm@1 */
        VersionOfModel: string;
    };
    responses: {
        /** @description The outcome. 202 means that the gateway asks models for their predictions first. */
        Feedback: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["FeedbackResult"] | components["schemas"]["FeedbackResults"];
            };
        };
        /** @description The request is malformed, or does not fit what it asks for; the message says where */
        NativeBadRequest: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description There was no prediction at the deadline */
        NativeDeadlineExceeded: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The request was rejected, or there is no prediction and no default output. A 503 has the header Retry-After. */
        NativeError: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description A browser sent the request for a page that may not use the gateway: see cors of a function, and --allowed-hosts */
        NativeForbidden: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The feedback is for a query that was answered too long ago */
        NativeGone: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The headers are larger than the limit. The connection is closed */
        NativeHeadersTooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The model failed, gave outputs that do not fit its signature, or was lost */
        NativeModelFailed: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description There is no such function, model or version */
        NativeNotFound: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The request came too slowly. The connection is closed */
        NativeTimeout: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The body, or an input or output, is larger than the limit */
        NativeTooLarge: {
            headers: {
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The gateway or the model cannot serve the request now. Try again after Retry-After */
        NativeUnavailable: {
            headers: {
                "Retry-After": components["headers"]["RetryAfter"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
        /** @description The body has a content coding that the gateway does not decode */
        NativeUnsupportedEncoding: {
            headers: {
                "Accept-Encoding": components["headers"]["AcceptEncoding"];
                [name: string]: unknown;
            };
            content: {
                "application/json": components["schemas"]["NativeError"];
            };
        };
    };
    parameters: {
        /** @description the caller's context (user, session, dialect). It selects the policy state and is passed to models that ask for it. It overrides the body's context */
        context: string;
    };
    requestBodies: {
        Feedback: {
            content: {
                "application/json": components["schemas"]["Feedback"] | components["schemas"]["FeedbackBatch"];
            };
        };
    };
    headers: {
        /** @description the content codings that the gateway decodes */
        AcceptEncoding: string;
        /** @description seconds until it is worth trying again */
        RetryAfter: number;
    };
    pathItems: never;
}
export type $defs = Record<string, never>;
export interface operations {
    describe: {
        parameters: {
            query?: never;
            header?: never;
            path: {
                function: components["schemas"]["Name"];
            };
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The description */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["CallDescription"];
                };
            };
            400: components["responses"]["NativeBadRequest"];
            403: components["responses"]["NativeForbidden"];
            404: components["responses"]["NativeNotFound"];
            431: components["responses"]["NativeHeadersTooLarge"];
            503: components["responses"]["NativeUnavailable"];
            default: components["responses"]["NativeError"];
        };
    };
    feedback: {
        parameters: {
            query?: never;
            header?: {
                /** @description the caller's context (user, session, dialect). It selects the policy state and is passed to models that ask for it. It overrides the body's context */
                "Xebec-Context"?: components["parameters"]["context"];
            };
            path: {
                function: components["schemas"]["Name"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Feedback"];
        responses: {
            200: components["responses"]["Feedback"];
            202: components["responses"]["Feedback"];
            400: components["responses"]["NativeBadRequest"];
            403: components["responses"]["NativeForbidden"];
            404: components["responses"]["NativeNotFound"];
            408: components["responses"]["NativeTimeout"];
            410: components["responses"]["NativeGone"];
            413: components["responses"]["NativeTooLarge"];
            415: components["responses"]["NativeUnsupportedEncoding"];
            431: components["responses"]["NativeHeadersTooLarge"];
            503: components["responses"]["NativeUnavailable"];
            default: components["responses"]["NativeError"];
        };
    };
    predict: {
        parameters: {
            query?: never;
            header?: {
                /** @description the caller's context (user, session, dialect). It selects the policy state and is passed to models that ask for it. It overrides the body's context */
                "Xebec-Context"?: components["parameters"]["context"];
                /** @description latency objective of this call in milliseconds; overrides the function's */
                "Xebec-Slo-Ms"?: number;
            };
            path: {
                function: components["schemas"]["Name"];
            };
            cookie?: never;
        };
        requestBody: {
            content: {
                "application/json": components["schemas"]["PredictRequest"];
                "application/octet-stream": string;
                "audio/*": string;
                "image/*": string;
                "multipart/form-data": {
                    /** Format: binary */
                    input?: string;
                } & {
                    [key: string]: string;
                };
                "text/csv": string;
                "text/plain": string;
                "video/*": string;
            };
        };
        responses: {
            /** @description The prediction or the default output. For a batch, each input has a prediction, the default output or an error; the status is 200 if at least one input has an output. */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["Prediction"] | components["schemas"]["BatchPrediction"];
                    "application/jsonl": string;
                    "application/octet-stream": string;
                    "text/event-stream": string;
                };
            };
            400: components["responses"]["NativeBadRequest"];
            403: components["responses"]["NativeForbidden"];
            404: components["responses"]["NativeNotFound"];
            406: components["responses"]["NativeError"];
            408: components["responses"]["NativeTimeout"];
            413: components["responses"]["NativeTooLarge"];
            415: components["responses"]["NativeUnsupportedEncoding"];
            431: components["responses"]["NativeHeadersTooLarge"];
            502: components["responses"]["NativeModelFailed"];
            503: components["responses"]["NativeUnavailable"];
            504: components["responses"]["NativeDeadlineExceeded"];
            default: components["responses"]["NativeError"];
        };
    };
    update: {
        parameters: {
            query?: never;
            header?: {
                /** @description the caller's context (user, session, dialect). It selects the policy state and is passed to models that ask for it. It overrides the body's context */
                "Xebec-Context"?: components["parameters"]["context"];
            };
            path: {
                function: components["schemas"]["Name"];
            };
            cookie?: never;
        };
        requestBody: components["requestBodies"]["Feedback"];
        responses: {
            200: components["responses"]["Feedback"];
            202: components["responses"]["Feedback"];
            400: components["responses"]["NativeBadRequest"];
            403: components["responses"]["NativeForbidden"];
            404: components["responses"]["NativeNotFound"];
            408: components["responses"]["NativeTimeout"];
            410: components["responses"]["NativeGone"];
            413: components["responses"]["NativeTooLarge"];
            415: components["responses"]["NativeUnsupportedEncoding"];
            431: components["responses"]["NativeHeadersTooLarge"];
            503: components["responses"]["NativeUnavailable"];
            default: components["responses"]["NativeError"];
        };
    };
    listNames: {
        parameters: {
            query?: never;
            header?: never;
            path?: never;
            cookie?: never;
        };
        requestBody?: never;
        responses: {
            /** @description The first 1000 names in alphabetical order */
            200: {
                headers: {
                    [name: string]: unknown;
                };
                content: {
                    "application/json": components["schemas"]["FunctionNames"];
                };
            };
            403: components["responses"]["NativeForbidden"];
        };
    };
}
