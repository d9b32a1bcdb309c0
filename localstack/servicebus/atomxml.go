package servicebus

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// document is an entry with the description of an entity in it.
type document struct {
	Queue        *description     `xml:"content>QueueDescription"`
	Topic        *description     `xml:"content>TopicDescription"`
	Subscription *description     `xml:"content>SubscriptionDescription"`
	Rule         *ruleDescription `xml:"content>RuleDescription"`
}

// description is that of a queue, topic or subscription. What isn't there is the
// default.
type description struct {
	LockDuration                              *string
	MaxSizeInMegabytes                        *int32
	RequiresDuplicateDetection                *bool
	RequiresSession                           *bool
	DefaultMessageTimeToLive                  *string
	DeadLetteringOnMessageExpiration          *bool
	DeadLetteringOnFilterEvaluationExceptions *bool
	DuplicateDetectionHistoryTimeWindow       *string
	MaxDeliveryCount                          *int32
	EnableBatchedOperations                   *bool
	Status                                    *string
	ForwardTo                                 *string
	ForwardDeadLetteredMessagesTo             *string
	UserMetadata                              *string
	AutoDeleteOnIdle                          *string
	EnablePartitioning                        *bool
	SupportOrdering                           *bool
	MaxMessageSizeInKilobytes                 *int64
	AuthorizationRules                        *struct {
		XML string `xml:",innerxml"`
	}
	DefaultRule *ruleDescription `xml:"DefaultRuleDescription"`
}

// kept are parts of a description that mean nothing here, and are told as they
// were given.
type kept struct {
	megabytes int32
	noBatches bool
	ordering  bool
	access    string // the rules of access, as XML
}

// properties turns a description into ours.
func (d *description) properties() (QueueProperties, error) {
	var p QueueProperties
	for _, f := range []struct {
		text *string
		to   *time.Duration
	}{
		{d.LockDuration, &p.LockDuration}, {d.DefaultMessageTimeToLive, &p.TimeToLive},
		{d.DuplicateDetectionHistoryTimeWindow, &p.Window}, {d.AutoDeleteOnIdle, &p.AutoDeleteOnIdle},
	} {
		if f.text == nil {
			continue
		}
		v, err := parseDuration(*f.text)
		if err != nil {
			return p, err
		}
		*f.to = v
	}
	if d.MaxDeliveryCount != nil {
		if *d.MaxDeliveryCount < 1 {
			return p, fmt.Errorf("the maximum delivery count %d is less than 1", *d.MaxDeliveryCount)
		}
		p.MaxDeliveries = uint32(*d.MaxDeliveryCount)
	}
	p.DuplicateDetection, p.RequiresSession = isTrue(d.RequiresDuplicateDetection), isTrue(d.RequiresSession)
	p.DeadLetterExpired, p.Partitioned = isTrue(d.DeadLetteringOnMessageExpiration), isTrue(d.EnablePartitioning)
	p.DeadLetterFilterErrors = isTrue(d.DeadLetteringOnFilterEvaluationExceptions)
	if d.ForwardTo != nil {
		p.ForwardTo = *d.ForwardTo
	}
	if d.ForwardDeadLetteredMessagesTo != nil {
		p.ForwardDeadLettersTo = *d.ForwardDeadLetteredMessagesTo
	}
	if d.UserMetadata != nil {
		p.UserMetadata = *d.UserMetadata
	}
	if d.MaxMessageSizeInKilobytes != nil {
		p.MaxMessageSize = int(min(*d.MaxMessageSizeInKilobytes, 1<<20)) << 10
	}
	p.kept = kept{megabytes: 1024, noBatches: d.EnableBatchedOperations != nil && !*d.EnableBatchedOperations, ordering: isTrue(d.SupportOrdering)}
	if d.MaxSizeInMegabytes != nil {
		p.kept.megabytes = *d.MaxSizeInMegabytes
	}
	if d.AuthorizationRules != nil {
		p.kept.access = d.AuthorizationRules.XML
	}
	if d.Status != nil {
		switch *d.Status {
		case "Active":
		case "Disabled":
			p.SendDisabled, p.ReceiveDisabled = true, true
		case "SendDisabled":
			p.SendDisabled = true
		case "ReceiveDisabled":
			p.ReceiveDisabled = true
		default:
			return p, fmt.Errorf("the status %q can't be set", *d.Status)
		}
	}
	return p, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

func (p *QueueProperties) status() string {
	switch {
	case p.SendDisabled && p.ReceiveDisabled:
		return "Disabled"
	case p.SendDisabled:
		return "SendDisabled"
	case p.ReceiveDisabled:
		return "ReceiveDisabled"
	}
	return "Active"
}

// writer writes elements.
type writer struct{ strings.Builder }

func escape(s string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(s))
	return b.String()
}

func (w *writer) text(name, value string) {
	w.WriteString("<" + name + ">" + escape(value) + "</" + name + ">")
}

func (w *writer) some(name, value string) {
	if value != "" {
		w.text(name, value)
	}
}

func (w *writer) bool(name string, v bool) { w.text(name, strconv.FormatBool(v)) }

func (w *writer) int(name string, v int64) { w.text(name, strconv.FormatInt(v, 10)) }

const schemas = ` xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"`

// describe writes the description of a queue or subscription.
func (q *queue) describe() string {
	var w writer
	p, c := q.p, q.counts()
	root := "QueueDescription"
	if q.topic != nil {
		root = "SubscriptionDescription"
	}
	w.WriteString("<" + root + schemas + ">")
	w.text("LockDuration", formatDuration(p.LockDuration))
	if q.topic == nil {
		w.int("MaxSizeInMegabytes", p.megabytes())
		w.bool("RequiresDuplicateDetection", p.DuplicateDetection)
	}
	w.bool("RequiresSession", p.RequiresSession)
	w.text("DefaultMessageTimeToLive", formatDuration(p.TimeToLive))
	w.bool("DeadLetteringOnMessageExpiration", p.DeadLetterExpired)
	if q.topic != nil {
		w.bool("DeadLetteringOnFilterEvaluationExceptions", p.DeadLetterFilterErrors)
	} else {
		w.text("DuplicateDetectionHistoryTimeWindow", formatDuration(p.Window))
	}
	w.int("MaxDeliveryCount", int64(p.MaxDeliveries))
	w.bool("EnableBatchedOperations", !p.kept.noBatches)
	if q.topic == nil {
		w.int("SizeInBytes", c.Bytes)
	}
	w.int("MessageCount", int64(c.Active+c.Scheduled+c.DeadLettered+c.Transfer))
	w.access(p)
	w.text("Status", p.status())
	w.some("ForwardTo", p.ForwardTo)
	w.some("UserMetadata", p.UserMetadata)
	w.times(q.created, q.updated, q.accessed)
	if q.topic == nil {
		w.bool("SupportOrdering", p.kept.ordering)
	}
	w.countDetails(c)
	w.text("AutoDeleteOnIdle", formatDuration(p.AutoDeleteOnIdle))
	if q.topic == nil {
		w.bool("EnablePartitioning", p.Partitioned)
	}
	w.text("EntityAvailabilityStatus", "Available")
	if q.topic == nil {
		w.bool("EnableExpress", false)
	}
	w.some("ForwardDeadLetteredMessagesTo", p.ForwardDeadLettersTo)
	if q.topic == nil {
		w.int("MaxMessageSizeInKilobytes", int64(q.maxSize()>>10))
	}
	w.WriteString("</" + root + ">")
	return w.String()
}

func (w *writer) access(p *QueueProperties) {
	if p.kept.access != "" {
		w.WriteString("<AuthorizationRules>" + p.kept.access + "</AuthorizationRules>")
	}
}

// megabytes is the size that is told.
func (p *QueueProperties) megabytes() int64 {
	if p.kept.megabytes <= 0 {
		return 1024
	}
	return int64(p.kept.megabytes)
}

func (w *writer) times(created, updated, accessed time.Time) {
	w.text("CreatedAt", at(created))
	w.text("UpdatedAt", at(updated))
	w.text("AccessedAt", at(accessed))
}

func (w *writer) countDetails(c Counts) {
	w.WriteString(`<CountDetails xmlns:d2p1="http://schemas.microsoft.com/netservices/2011/06/servicebus">`)
	w.int("d2p1:ActiveMessageCount", int64(c.Active))
	w.int("d2p1:DeadLetterMessageCount", int64(c.DeadLettered))
	w.int("d2p1:ScheduledMessageCount", int64(c.Scheduled))
	w.int("d2p1:TransferMessageCount", 0)
	w.int("d2p1:TransferDeadLetterMessageCount", int64(c.Transfer))
	w.WriteString("</CountDetails>")
}

// describe writes the description of a topic.
func (t *topic) describe() string {
	var w writer
	p, c := t.p, t.waiting.counts()
	w.WriteString("<TopicDescription" + schemas + ">")
	w.text("DefaultMessageTimeToLive", formatDuration(p.TimeToLive))
	w.int("MaxSizeInMegabytes", p.megabytes())
	w.bool("RequiresDuplicateDetection", p.DuplicateDetection)
	w.text("DuplicateDetectionHistoryTimeWindow", formatDuration(p.Window))
	w.bool("EnableBatchedOperations", !p.kept.noBatches)
	w.int("SizeInBytes", c.Bytes)
	w.access(p)
	w.text("Status", p.status())
	w.some("UserMetadata", p.UserMetadata)
	w.times(t.created, t.updated, t.accessed)
	w.bool("SupportOrdering", p.kept.ordering)
	w.countDetails(c)
	w.int("SubscriptionCount", int64(len(t.subs)))
	w.text("AutoDeleteOnIdle", formatDuration(p.AutoDeleteOnIdle))
	w.bool("EnablePartitioning", p.Partitioned)
	w.text("EntityAvailabilityStatus", "Available")
	w.bool("EnableExpress", false)
	sql, correlations := t.filterCounts()
	w.int("SqlFilterCount", sql)
	w.int("CorrelationFilterCount", correlations)
	w.int("MaxMessageSizeInKilobytes", int64(t.maxSize()>>10))
	w.WriteString("</TopicDescription>")
	return w.String()
}

func (t *topic) filterCounts() (sql, correlations int64) {
	for _, q := range t.subs {
		for _, r := range q.rules {
			if _, ok := r.filter.(*correlation); ok {
				correlations++
			} else {
				sql++
			}
		}
	}
	return sql, correlations
}

// entry is the answer with one entity.
func (s *Server) entry(r *atomRequest, status int, title, description string) atomAnswer {
	return atomAnswer{status, s.entryText("https://"+r.host+"/"+r.path, title, description)}
}

// entryText writes an entry. Some clients take the names out of its ID.
func (s *Server) entryText(id, title, description string) string {
	var w writer
	now := at(s.clock.Now())
	w.WriteString(`<entry xmlns="http://www.w3.org/2005/Atom">`)
	w.text("id", id)
	w.WriteString(`<title type="text">` + escape(title) + `</title>`)
	w.text("published", now)
	w.text("updated", now)
	w.WriteString(`<author><name>onceline</name></author><link rel="self" href="` + escape(id) + `"></link>`)
	w.WriteString(`<content type="application/xml">` + description + `</content></entry>`)
	return w.String()
}

// item is one of a list, with its own path.
type item struct{ path, title, description string }

// feed is the answer with the part of a list that was asked for.
func (s *Server) feed(r *atomRequest, title string, n int, get func(int) item) atomAnswer {
	var w writer
	w.WriteString(`<feed xmlns="http://www.w3.org/2005/Atom"><title type="text">` + title + `</title>`)
	w.text("id", "https://"+r.host+"/"+r.path)
	w.text("updated", at(s.clock.Now()))
	for i := r.skip; i < n && i < r.skip+r.top; i++ {
		x := get(i)
		w.WriteString(s.entryText("https://"+r.host+"/"+x.path, x.title, x.description))
	}
	w.WriteString("</feed>")
	return atomAnswer{http.StatusOK, w.String()}
}

func (s *Server) listQueues(r *atomRequest) atomAnswer {
	var qs []*queue
	for _, q := range s.queues {
		if q.parent == nil && q.topic == nil {
			qs = append(qs, q)
		}
	}
	slices.SortFunc(qs, func(a, b *queue) int { return strings.Compare(a.path, b.path) })
	return s.feed(r, "Queues", len(qs), func(i int) item { return item{qs[i].path, qs[i].path, qs[i].describe()} })
}

func (s *Server) listTopics(r *atomRequest) atomAnswer {
	var ts []*topic
	for _, t := range s.topics {
		ts = append(ts, t)
	}
	slices.SortFunc(ts, func(a, b *topic) int { return strings.Compare(a.path, b.path) })
	return s.feed(r, "Topics", len(ts), func(i int) item { return item{ts[i].path, ts[i].path, ts[i].describe()} })
}

func (s *Server) listSubscriptions(r *atomRequest, t *topic) atomAnswer {
	return s.feed(r, "Subscriptions", len(t.subs), func(i int) item { return item{t.subs[i].path, t.subs[i].lastName(), t.subs[i].describe()} })
}

func (s *Server) namespaceInfo(r *atomRequest) atomAnswer {
	var w writer
	w.WriteString("<NamespaceInfo" + schemas + ">")
	w.text("CreatedTime", at(s.created))
	w.text("MessagingSKU", "Standard")
	w.text("ModifiedTime", at(s.created))
	w.text("Name", "onceline")
	w.text("NamespaceType", "Messaging")
	w.WriteString("</NamespaceInfo>")
	return s.entry(r, http.StatusOK, "onceline", w.String())
}
