package report

// Claim is one question of the catalogue as it stood when the run was made, so that
// a report can be read without the toolkit that wrote it.
type Claim struct {
	// Claim is the claim's ID, for example "publish.dedup.window".
	Claim string `json:"claim"`
	// Hop is 1 (producer to broker), 2 (broker to consumer) or 3 (consumer to
	// effect store).
	Hop int `json:"hop"`
	// Question is the claim in words.
	Question string `json:"question"`
	// Answers are all that the claim can have, from the weakest to the strongest.
	Answers []string `json:"answers"`
	// Meaning is why a user cares.
	Meaning string `json:"meaning"`
}

func (c Claim) mapped(f func(string) string) Claim {
	return Claim{f(c.Claim), c.Hop, f(c.Question), each(c.Answers, f), f(c.Meaning)}
}

// Fact is what a [Finding] cites by its ID, so that a reader has the words and the
// vendor's source at hand.
type Fact struct {
	// ID is what findings cite, for example "NATS-F-16".
	ID string `json:"id"`
	// Text is the fact in a sentence or two; code in it stands between backticks.
	Text string `json:"text"`
	// Numbers are its limits and defaults, and what they were measured on; may be
	// empty.
	Numbers string `json:"numbers"`
	// Source says where it stands: a page, or a file of the vendor's code.
	Source string `json:"source"`
	// Confidence is what kind of source that is, for example "documented" or
	// "observed".
	Confidence string `json:"confidence"`
	// Links are URLs to the source, as far as there are any.
	Links []string `json:"links"`
}

func (c Fact) mapped(f func(string) string) Fact {
	return Fact{f(c.ID), f(c.Text), f(c.Numbers), f(c.Source), f(c.Confidence), each(c.Links, f)}
}
