import xebec

xebec.serve(lambda batch: [0] * len(batch))  # batch: a list of arrays, for their lengths differ
